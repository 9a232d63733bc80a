// kafka-consumer-groups and kafka-share-groups in one JVM. Arguments: servers. Each line of stdin is a command, consumer or
// share with its options; its output follows on stdout, errors with it, and a line "--- exit N" ends it.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;
import org.apache.kafka.tools.consumer.group.ShareGroupCommand;

public class GroupTools {
    private static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    public static void main(String[] given) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        PrintStream out = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream shown = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(shown, true);
            System.setOut(both);
            System.setErr(both);
            int status = run(given[0], line.split(" "));
            System.setOut(out);
            out.print(shown);
            out.printf("%n--- exit %d%n", status);
            out.flush();
        }
    }

    private static int run(String servers, String[] words) {
        List<String> options = new ArrayList<>(List.of("--bootstrap-server", servers));
        options.addAll(List.of(words).subList(1, words.length));
        String[] arguments = options.toArray(new String[0]);
        try {
            if (words[0].equals("share")) {
                ShareGroupCommand.main(arguments);
            } else {
                ConsumerGroupCommand.main(arguments);
            }
            return 0;
        } catch (Ended end) {
            return end.status;
        } catch (Exception problem) {
            System.out.println(problem);
            return -1;
        }
    }
}
