"""The messages of Pulsar's binary protocol as classes of the `protobuf` library.

A table below gives the number and the type of each field that this package uses. Numbers and types were read from the classes of
Pulsar 5.0.0-M1. A peer may send other fields: `protobuf` keeps them unread. No field is required, so a message of a newer broker
can be parsed even if a field is missing. The code that needs a field tests `HasField`.

    command = BaseCommand(type=PING, ping=CommandPing())
    BaseCommand.FromString(command.SerializeToString())
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "txnsegment.pulsar"
_MESSAGES: Final = """
KeyValue: 1 key string, 2 value string
Schema: 1 name string, 3 schema_data bytes, 4 type int32, 5 properties KeyValue*
MessageIdData: 1 ledger_id uint64, 2 entry_id uint64, 3 partition int32, 4 batch_index int32, 5 ack_set int64*,
    6 batch_size int32, 7 first_chunk_message_id MessageIdData
EncryptionKeys: 1 key string, 2 value bytes, 3 metadata KeyValue*
MessageMetadata: 1 producer_name string, 2 sequence_id uint64, 3 publish_time uint64, 4 properties KeyValue*,
    5 replicated_from string, 6 partition_key string, 7 replicate_to string*, 8 compression int32, 9 uncompressed_size uint32,
    11 num_messages_in_batch int32, 12 event_time uint64, 13 encryption_keys EncryptionKeys*, 14 encryption_algo string,
    15 encryption_param bytes, 16 schema_version bytes, 17 partition_key_b64_encoded bool, 18 ordering_key bytes,
    19 deliver_at_time int64, 20 marker_type int32, 22 txnid_least_bits uint64, 23 txnid_most_bits uint64,
    24 highest_sequence_id uint64, 25 null_value bool, 26 uuid string, 27 num_chunks_from_msg int32,
    28 total_chunk_msg_size int32, 29 chunk_id int32, 30 null_partition_key bool, 31 compacted_batch_indexes int32*,
    32 schema_id bytes
SingleMessageMetadata: 1 properties KeyValue*, 2 partition_key string, 3 payload_size int32, 4 compacted_out bool,
    5 event_time uint64, 6 partition_key_b64_encoded bool, 7 ordering_key bytes, 8 sequence_id uint64, 9 null_value bool,
    10 null_partition_key bool
BrokerEntryMetadata: 1 broker_timestamp uint64, 2 index uint64
FeatureFlags: 1 supports_auth_refresh bool, 2 supports_broker_entry_metadata bool, 3 supports_partial_producer bool,
    4 supports_topic_watchers bool, 5 supports_get_partitioned_metadata_without_auto_creation bool,
    6 supports_repl_dedup_by_lid_and_eid bool, 7 supports_topic_watcher_reconcile bool, 8 supports_scalable_topics bool,
    9 supports_tc_metadata_discovery bool
AuthData: 1 auth_method_name string, 2 auth_data bytes
CommandConnect: 1 client_version string, 2 auth_method int32, 3 auth_data bytes, 4 protocol_version int32,
    5 auth_method_name string, 6 proxy_to_broker_url string, 10 feature_flags FeatureFlags
CommandConnected: 1 server_version string, 2 protocol_version int32, 3 max_message_size int32, 4 feature_flags FeatureFlags
CommandAuthChallenge: 1 server_version string, 2 challenge AuthData, 3 protocol_version int32
CommandAuthResponse: 1 client_version string, 2 response AuthData, 3 protocol_version int32
CommandSubscribe: 1 topic string, 2 subscription string, 3 sub_type int32, 4 consumer_id uint64, 5 request_id uint64,
    6 consumer_name string, 7 priority_level int32, 8 durable bool, 9 start_message_id MessageIdData, 10 metadata KeyValue*,
    11 read_compacted bool, 12 schema Schema, 13 initial_position int32, 15 force_topic_creation bool,
    16 start_message_rollback_duration_sec uint64, 18 subscription_properties KeyValue*, 19 consumer_epoch uint64
CommandProducer: 1 topic string, 2 producer_id uint64, 3 request_id uint64, 4 producer_name string, 5 encrypted bool,
    6 metadata KeyValue*, 7 schema Schema, 8 epoch uint64, 9 user_provided_producer_name bool, 10 producer_access_mode int32,
    11 topic_epoch uint64, 12 txn_enabled bool, 13 initial_subscription_name string
CommandProducerSuccess: 1 request_id uint64, 2 producer_name string, 3 last_sequence_id int64, 4 schema_version bytes,
    5 topic_epoch uint64, 6 producer_ready bool
CommandSend: 1 producer_id uint64, 2 sequence_id uint64, 3 num_messages int32, 4 txnid_least_bits uint64,
    5 txnid_most_bits uint64, 6 highest_sequence_id uint64, 7 is_chunk bool, 8 marker bool, 9 message_id MessageIdData
CommandSendReceipt: 1 producer_id uint64, 2 sequence_id uint64, 3 message_id MessageIdData, 4 highest_sequence_id uint64
CommandSendError: 1 producer_id uint64, 2 sequence_id uint64, 3 error int32, 4 message string
CommandMessage: 1 consumer_id uint64, 2 message_id MessageIdData, 3 redelivery_count uint32, 4 ack_set int64*,
    5 consumer_epoch uint64
CommandAck: 1 consumer_id uint64, 2 ack_type int32, 3 message_id MessageIdData*, 4 validation_error int32,
    6 txnid_least_bits uint64, 7 txnid_most_bits uint64, 8 request_id uint64
CommandAckResponse: 1 consumer_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 error int32, 5 message string,
    6 request_id uint64
CommandFlow: 1 consumer_id uint64, 2 message_permits uint32
CommandUnsubscribe: 1 consumer_id uint64, 2 request_id uint64, 3 force bool
CommandSeek: 1 consumer_id uint64, 2 request_id uint64, 3 message_id MessageIdData, 4 message_publish_time uint64
CommandReachedEndOfTopic: 1 consumer_id uint64
CommandActiveConsumerChange: 1 consumer_id uint64, 2 is_active bool
CommandSuccess: 1 request_id uint64, 2 schema Schema
CommandError: 1 request_id uint64, 2 error int32, 3 message string
CommandCloseProducer: 1 producer_id uint64, 2 request_id uint64, 3 assigned_broker_service_url string,
    4 assigned_broker_service_url_tls string
CommandCloseConsumer: 1 consumer_id uint64, 2 request_id uint64, 3 assigned_broker_service_url string,
    4 assigned_broker_service_url_tls string
CommandPing:
CommandPong:
CommandPartitionedTopicMetadata: 1 topic string, 2 request_id uint64, 6 metadata_auto_creation_enabled bool
CommandPartitionedTopicMetadataResponse: 1 partitions uint32, 2 request_id uint64, 3 response int32, 4 error int32,
    5 message string
CommandLookupTopic: 1 topic string, 2 request_id uint64, 3 authoritative bool, 7 advertised_listener_name string
CommandLookupTopicResponse: 1 broker_service_url string, 2 broker_service_url_tls string, 3 response int32, 4 request_id uint64,
    5 authoritative bool, 6 error int32, 7 message string, 8 proxy_through_service_url bool
CommandGetLastMessageId: 1 consumer_id uint64, 2 request_id uint64
CommandGetLastMessageIdResponse: 1 last_message_id MessageIdData, 2 request_id uint64,
    3 consumer_mark_delete_position MessageIdData
CommandGetTopicsOfNamespace: 1 request_id uint64, 2 namespace string, 3 mode int32, 4 topics_pattern string
CommandGetTopicsOfNamespaceResponse: 1 request_id uint64, 2 topics string*, 3 filtered bool, 5 changed bool
CommandGetSchema: 1 request_id uint64, 2 topic string, 3 schema_version bytes
CommandGetSchemaResponse: 1 request_id uint64, 2 error_code int32, 3 error_message string, 4 schema Schema,
    5 schema_version bytes
CommandGetOrCreateSchema: 1 request_id uint64, 2 topic string, 3 schema Schema, 4 producer_name string
CommandGetOrCreateSchemaResponse: 1 request_id uint64, 2 error_code int32, 3 error_message string, 4 schema_version bytes
CommandNewTxn: 1 request_id uint64, 2 txn_ttl_millis uint64, 3 tc_id uint64, 4 scalable bool
CommandNewTxnResponse: 1 request_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 error int32, 5 message string
CommandAddPartitionToTxn: 1 request_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 partitions string*,
    5 scalable bool
CommandAddPartitionToTxnResponse: 1 request_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 error int32,
    5 message string
CommandEndTxn: 1 request_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 txn_action int32, 5 scalable bool
CommandEndTxnResponse: 1 request_id uint64, 2 txnid_least_bits uint64, 3 txnid_most_bits uint64, 4 error int32, 5 message string
CommandTcClientConnectRequest: 1 request_id uint64, 2 tc_id uint64, 3 scalable bool
CommandTcClientConnectResponse: 1 request_id uint64, 2 error int32, 3 message string
SegmentInfoProto: 1 segment_id uint64, 2 hash_start uint32, 3 hash_end uint32, 4 state int32, 5 parent_ids uint64*,
    6 child_ids uint64*, 7 created_at_epoch uint64, 8 sealed_at_epoch uint64, 9 created_at_ms uint64, 10 sealed_at_ms uint64,
    11 legacy_topic_name string
SegmentBrokerAddress: 1 segment_id uint64, 2 broker_url string, 3 broker_url_tls string
ScalableTopicDAG: 1 epoch uint64, 2 segments SegmentInfoProto*, 3 segment_brokers SegmentBrokerAddress*,
    4 controller_broker_url string, 5 controller_broker_url_tls string
CommandScalableTopicLookup: 1 session_id uint64, 2 topic string
CommandScalableTopicUpdate: 1 session_id uint64, 2 dag ScalableTopicDAG, 3 error int32, 4 message string,
    5 resolved_topic_name string
CommandScalableTopicClose: 1 session_id uint64
ScalableAssignedSegment: 1 segment_id uint64, 2 hash_start uint32, 3 hash_end uint32, 4 segment_topic string
ScalableConsumerAssignment: 1 layout_epoch uint64, 2 segments ScalableAssignedSegment*
CommandScalableTopicSubscribe: 1 request_id uint64, 2 topic string, 3 subscription string, 4 consumer_name string,
    5 consumer_id uint64, 6 consumer_type int32
CommandScalableTopicSubscribeResponse: 1 request_id uint64, 2 error int32, 3 message string,
    4 assignment ScalableConsumerAssignment
CommandScalableTopicAssignmentUpdate: 1 consumer_id uint64, 2 assignment ScalableConsumerAssignment
TcAssignment: 1 tc_id uint64, 2 broker_service_url string, 3 broker_service_url_tls string
TcAssignmentsSnapshot: 1 parallelism uint32, 2 assignments TcAssignment*
CommandWatchTcAssignments: 1 watch_id uint64
CommandWatchTcAssignmentsUpdate: 1 watch_id uint64, 2 snapshot TcAssignmentsSnapshot, 3 error int32, 4 message string
CommandWatchTcAssignmentsClose: 1 watch_id uint64
ScalableTopicsSnapshot: 1 topics string*
CommandWatchScalableTopics: 1 watch_id uint64, 2 namespace string, 3 property_filters KeyValue*, 4 current_hash string
CommandWatchScalableTopicsUpdate: 1 watch_id uint64, 2 snapshot ScalableTopicsSnapshot, 4 error int32, 5 message string
CommandWatchScalableTopicsClose: 1 watch_id uint64
"""
"""The fields of each message, as `Message: number name type, ..`. A type with `*` is repeated. A type that begins with a capital is
a message.
"""

COMMANDS: Final = {
    2: "connect", 3: "connected", 4: "subscribe", 5: "producer", 6: "send", 7: "send_receipt", 8: "send_error", 9: "message",
    10: "ack", 11: "flow", 12: "unsubscribe", 13: "success", 14: "error", 15: "close_producer", 16: "close_consumer",
    17: "producer_success", 18: "ping", 19: "pong", 21: "partition_metadata", 22: "partition_metadata_response",
    23: "lookup_topic", 24: "lookup_topic_response", 27: "reached_end_of_topic", 28: "seek", 29: "get_last_message_id",
    30: "get_last_message_id_response", 31: "active_consumer_change", 32: "get_topics_of_namespace",
    33: "get_topics_of_namespace_response", 34: "get_schema", 35: "get_schema_response", 36: "auth_challenge",
    37: "auth_response", 38: "ack_response", 39: "get_or_create_schema", 40: "get_or_create_schema_response", 50: "new_txn",
    51: "new_txn_response", 52: "add_partition_to_txn", 53: "add_partition_to_txn_response", 56: "end_txn",
    57: "end_txn_response", 62: "tc_client_connect_request", 63: "tc_client_connect_response", 70: "scalable_topic_lookup",
    71: "scalable_topic_update", 72: "scalable_topic_close", 73: "scalable_topic_subscribe",
    76: "watch_scalable_topics", 77: "watch_scalable_topics_update", 78: "watch_scalable_topics_close",
    74: "scalable_topic_subscribe_response", 75: "scalable_topic_assignment_update", 79: "watch_tc_assignments",
    80: "watch_tc_assignments_update", 81: "watch_tc_assignments_close",
}  # fmt: skip
"""The name of the command of each type. A command's number is its type, and its field number in `BaseCommand`."""

TYPES: Final = {name: number for number, name in COMMANDS.items()}
_CLASSES: Final = {"partition_metadata": "CommandPartitionedTopicMetadata",
                   "partition_metadata_response": "CommandPartitionedTopicMetadataResponse"}  # fmt: skip
"""The commands whose class has another name than the command."""


def _class_of(command: str) -> str:
    return _CLASSES.get(command) or "Command" + "".join(word.capitalize() for word in command.split("_"))


def _definitions() -> dict[str, list[tuple[int, str, str]]]:
    """Return the fields (number, name, type) of each message."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for line in _MESSAGES.replace("\n    ", " ").strip().splitlines():
        name, _, fields = line.partition(":")
        words = [field.split() for field in fields.split(",") if field.strip()]
        found[name] = [(int(number), field, kind) for number, field, kind in words]
    commands = [(number, name, _class_of(name)) for number, name in COMMANDS.items()]
    found["BaseCommand"] = [(1, "type", "int32"), *commands]
    return found


def _classes() -> dict[str, Any]:
    """Return the class of each message."""
    file = descriptor_pb2.FileDescriptorProto(name="txnsegment/pulsar.proto", package=_PACKAGE, syntax="proto2")
    definitions = _definitions()
    for name, fields in definitions.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            kind_of = kind.removesuffix("*")
            field = message.field.add(name=field_name, number=number)
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            if kind_of in definitions:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind_of}"
            else:
                field.type = getattr(field, f"TYPE_{kind_of.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in definitions}


_BY_NAME: Final = _classes()
BaseCommand: Final = _BY_NAME["BaseCommand"]
BrokerEntryMetadata: Final = _BY_NAME["BrokerEntryMetadata"]
EncryptionKeys: Final = _BY_NAME["EncryptionKeys"]
KeyValue: Final = _BY_NAME["KeyValue"]
MessageIdData: Final = _BY_NAME["MessageIdData"]
MessageMetadata: Final = _BY_NAME["MessageMetadata"]
Schema: Final = _BY_NAME["Schema"]
SingleMessageMetadata: Final = _BY_NAME["SingleMessageMetadata"]


def command(name: str, **fields: object) -> Any:
    """Return a `BaseCommand` with one command in it, such as `command("ping")`. Fields that are None are left out.

    Raises KeyError for an unknown command, ValueError for an unknown field.
    """
    given = {field: value for field, value in fields.items() if value is not None}
    return BaseCommand(type=TYPES[name], **{name: _BY_NAME[_class_of(name)](**given)})


def name_of(base: Any) -> str | None:
    """Return the name of the command in a `BaseCommand`, or None if this package does not know its type."""
    return COMMANDS.get(base.type)
