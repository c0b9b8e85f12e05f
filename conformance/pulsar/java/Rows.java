import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.config.BatchingPolicy;
import org.apache.pulsar.client.api.v5.config.ChunkingPolicy;
import org.apache.pulsar.client.api.v5.config.CompressionPolicy;
import org.apache.pulsar.client.api.v5.config.CompressionType;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Pulsar's own Java client, driven by another program. Each line of the input is a request in JSON, and each line of the output its
 * answer. conformance/pulsar_java.py describes the requests.
 */
public class Rows {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Receives the next row, or null if none comes in time. */
    interface Receiver {
        Message<?> receive(Duration wait) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0])
                .transactionPolicy(TransactionPolicy.builder().timeout(Duration.ofMinutes(5)).build()).build()) {
            for (String line; (line = requests.readLine()) != null; ) {
                Object answer;
                try {
                    answer = Map.of("done", answer(client, JSON.readValue(line, Map.class)));
                } catch (Exception error) {
                    error.printStackTrace();
                    answer = Map.of("error", error.toString());
                }
                answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
                answers.flush();
            }
        }
    }

    private static Object answer(PulsarClient client, Map<?, ?> request) throws Exception {
        return switch ((String) request.get("do")) {
            case "write" -> write(client, request, schema(request));
            case "read" -> read(client, request, schema(request));
            case "pour" -> poured(client, request);
            case "drain" -> drained(client, request);
            default -> throw new IllegalArgumentException("unknown request " + request);
        };
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Schema<Object> schema(Map<?, ?> request) throws ReflectiveOperationException {
        Schema<?> found = switch (String.valueOf(request.get("schema"))) {
            case "string" -> Schema.string();
            case "bytes" -> Schema.bytes();
            case "int64" -> Schema.int64();
            case "avro" -> Schema.avro(Order.class);
            case "json" -> Schema.json(Order.class);
            case "inline" -> keyValue(KeyValueEncodingType.INLINE);
            case "separated" -> keyValue(KeyValueEncodingType.SEPARATED);
            default -> null;
        };
        return (Schema) found;
    }

    /**
     * Returns the schema of pairs of a text and an order. The v5 API has no such schema, but its client takes those of the v4 API,
     * which it uses inside.
     */
    private static Schema<?> keyValue(KeyValueEncodingType encoding) throws ReflectiveOperationException {
        var older = org.apache.pulsar.client.api.Schema.KeyValue(org.apache.pulsar.client.api.Schema.STRING,
                org.apache.pulsar.client.api.Schema.AVRO(Order.class), encoding);
        var adapter = Class.forName("org.apache.pulsar.client.impl.v5.SchemaAdapter")
                .getDeclaredMethod("toV5", org.apache.pulsar.client.api.Schema.class);
        adapter.setAccessible(true);
        return (Schema<?>) adapter.invoke(null, older);
    }

    /**
     * Sends all rows, and then waits for all receipts, so that the client can batch the rows if the request asks for it. In a
     * transaction, this method waits for the receipts after each batch.
     */
    private static Object write(PulsarClient client, Map<?, ?> request, Schema<Object> schema) throws Exception {
        int batch = (Integer) request.get("batch");
        BatchingPolicy batching = batch == 0 ? BatchingPolicy.ofDisabled()
                : BatchingPolicy.builder().enabled(true).maxMessages(batch).maxPublishDelay(Duration.ofMillis(200)).build();
        int chunk = (Integer) request.get("chunk");
        ChunkingPolicy chunking = chunk == 0 ? ChunkingPolicy.ofDisabled()
                : ChunkingPolicy.builder().enabled(true).chunkSize(chunk).build();
        String end = (String) request.get("end");
        var producer = client.newProducer(schema).topic((String) request.get("topic")).batchingPolicy(batching)
                .chunkingPolicy(chunking)
                .compressionPolicy(CompressionPolicy.of(CompressionType.valueOf((String) request.get("compression")))).create();
        try (producer) {
            Transaction transaction = end == null ? null : client.newTransaction();
            List<CompletableFuture<?>> receipts = new ArrayList<>();
            for (Object one : (List<?>) request.get("rows")) {
                Map<?, ?> row = (Map<?, ?>) one;
                var message = producer.async().newMessage().value(value(request, row.get("value")));
                if (row.get("key") != null) {
                    message = message.key((String) row.get("key"));
                }
                if (row.get("event_ms") != null) {
                    message = message.eventTime(Instant.ofEpochMilli(((Number) row.get("event_ms")).longValue()));
                }
                if (row.get("properties") != null) {
                    for (Map.Entry<?, ?> property : ((Map<?, ?>) row.get("properties")).entrySet()) {
                        message = message.property((String) property.getKey(), (String) property.getValue());
                    }
                }
                receipts.add((transaction == null ? message : message.transaction(transaction)).send());
                if (transaction != null && receipts.size() % Math.max(1, batch) == 0) {
                    CompletableFuture.allOf(receipts.toArray(new CompletableFuture[0])).get();
                }
            }
            CompletableFuture.allOf(receipts.toArray(new CompletableFuture[0])).get();
            if (transaction != null && end.equals("commit")) {
                transaction.commit();
            } else if (transaction != null) {
                transaction.abort();
            }
            return receipts.size();
        }
    }

    private static Object value(Map<?, ?> request, Object value) {
        return switch ((String) request.get("schema")) {
            case "bytes" -> HexFormat.of().parseHex((String) value);
            case "int64" -> ((Number) value).longValue();
            case "avro", "json" -> JSON.convertValue(value, Order.class);
            case "inline", "separated" -> new KeyValue<>((String) ((Map<?, ?>) value).get("key"),
                    JSON.convertValue(((Map<?, ?>) value).get("value"), Order.class));
            default -> value;
        };
    }

    private static Object read(PulsarClient client, Map<?, ?> request, Schema<Object> schema) throws Exception {
        String topic = (String) request.get("topic");
        String subscription = (String) request.get("subscription");
        switch ((String) request.get("how")) {
            case "stream" -> {
                try (var consumer = client.newStreamConsumer(schema).topic(topic).subscriptionName(subscription)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
                    return received(request, consumer::receive);
                }
            }
            case "queue" -> {
                try (var consumer = client.newQueueConsumer(schema).topic(topic).subscriptionName(subscription)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST).subscribe()) {
                    return received(request, consumer::receive);
                }
            }
            case "checkpoint" -> {
                try (var consumer = client.newCheckpointConsumer(schema).topic(topic)
                        .startPosition(Checkpoint.earliest()).create()) {
                    return received(request, consumer::receive);
                }
            }
            default -> throw new IllegalArgumentException("unknown consumer " + request);
        }
    }

    /**
     * Receives `count` rows, waiting at most `limit_ms` for each of them. Receives further rows until none comes for `quiet_ms`. Returns
     * the rows that came; these are fewer than `count` if one of them came too late.
     */
    private static Object received(Map<?, ?> request, Receiver receiver) throws Exception {
        int count = (Integer) request.get("count");
        Duration quiet = Duration.ofMillis((Integer) request.get("quiet_ms"));
        Duration limit = Duration.ofMillis((Integer) request.get("limit_ms"));
        List<Map<String, Object>> rows = new ArrayList<>();
        while (true) {
            Message<?> message = receiver.receive(rows.size() < count ? limit : quiet);
            if (message == null) {
                return rows;
            }
            Map<String, Object> row = new LinkedHashMap<>();
            Object value = message.value();
            row.put("value", shown(value));
            row.put("key", message.key().orElse(null));
            row.put("properties", message.properties());
            row.put("event_ms", message.eventTime().map(Instant::toEpochMilli).orElse(0L));
            rows.add(row);
        }
    }

    /**
     * Sends many rows of bytes in large batches, without a transaction. Returns the nanoseconds that this took. In a transaction, the
     * receipts of Pulsar 5.0.0-M1 come in another order than the entries, and the client connects again at each such receipt.
     */
    private static Object poured(PulsarClient client, Map<?, ?> request) throws Exception {
        int count = (Integer) request.get("count");
        int size = (Integer) request.get("size");
        var batching = BatchingPolicy.builder().enabled(true).maxMessages((Integer) request.get("batch"))
                .maxPublishDelay(Duration.ofMillis(10)).build();
        long begun = System.nanoTime();
        try (var producer = client.newProducer(Schema.bytes()).topic((String) request.get("topic")).batchingPolicy(batching).create()) {
            var last = new CompletableFuture<?>[10_000];
            for (int i = 0; i < count; i++) {
                byte[] value = new byte[size];
                ByteBuffer.wrap(value).putLong(i);
                int place = i % last.length;
                if (last[place] != null) {
                    last[place].get();
                }
                last[place] = producer.async().newMessage().key("key-" + i % 1000).value(value).send();
            }
            for (var one : last) {
                if (one != null) {
                    one.get();
                }
            }
        }
        return System.nanoTime() - begun;
    }

    /** Receives many rows from the beginning of a topic. Returns the nanoseconds that this took. */
    private static Object drained(PulsarClient client, Map<?, ?> request) throws Exception {
        String topic = (String) request.get("topic");
        Duration limit = Duration.ofMillis((Integer) request.get("limit_ms"));
        long begun = System.nanoTime();
        try (var consumer = client.newCheckpointConsumer(Schema.bytes()).topic(topic).startPosition(Checkpoint.earliest()).create()) {
            count(request, limit, consumer::receive);
        }
        return System.nanoTime() - begun;
    }

    private static void count(Map<?, ?> request, Duration limit, Receiver receiver) throws Exception {
        long bytes = 0;
        for (int left = (Integer) request.get("count"); left > 0; left--) {
            Message<?> message = receiver.receive(limit);
            if (message == null) {
                throw new IllegalStateException("no row came, and " + left + " are missing");
            }
            bytes += ((byte[]) message.value()).length;
        }
        if (bytes == 0) {
            throw new IllegalStateException("the rows have no bytes");
        }
    }

    private static Object shown(Object value) {
        if (value instanceof KeyValue<?, ?> pair) {
            Map<String, Object> parts = new LinkedHashMap<>();
            parts.put("key", pair.getKey());
            parts.put("value", pair.getValue());
            return parts;
        }
        return value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : value;
    }
}
