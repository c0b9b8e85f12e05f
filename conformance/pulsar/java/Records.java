import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.jar.JarFile;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Reads records of the metadata store with the broker's own classes, and writes them again. A line of the input is the name of a
 * class, a tab and the JSON of a record. A line of the output is the JSON that the class writes. The argument is the jar of another
 * version of the broker, whose classes are used then.
 */
public class Records {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClassLoader classes = arguments.length == 0 ? Records.class.getClassLoader() : new Other(new JarFile(arguments[0]));
        var mapper = ObjectMapperFactory.getMapper();
        BufferedReader records = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = records.readLine()) != null; ) {
            String[] parts = line.split("\t", 2);
            Object read = mapper.reader().forType(classes.loadClass(parts[0])).readValue(parts[1]);
            answers.write((mapper.writer().writeValueAsString(read) + "\n").getBytes(StandardCharsets.UTF_8));
        }
        answers.flush();
    }

    /**
     * Takes the classes of records from one jar, and all others from the class path. Pulsar 5.0.1 is compiled for Java 21. Its classes
     * of records need no more than Java 17, so their version is lowered to that of this Java.
     */
    private static class Other extends ClassLoader {
        private static final String RECORDS = "org.apache.pulsar.broker.transaction.metadata.";
        private final JarFile jar;

        Other(JarFile jar) {
            super(Records.class.getClassLoader());
            this.jar = jar;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(RECORDS)) {
                return super.loadClass(name, resolve);
            }
            Class<?> found = findLoadedClass(name);
            return found == null ? fromJar(name) : found;
        }

        private Class<?> fromJar(String name) throws ClassNotFoundException {
            try (var stream = jar.getInputStream(jar.getEntry(name.replace('.', '/') + ".class"))) {
                byte[] code = stream.readAllBytes();
                code[7] = (byte) Math.min(code[7], Runtime.version().feature() + 44);
                return defineClass(name, code, 0, code.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }
}
