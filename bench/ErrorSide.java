// Kafka's own response to a request that fails with an error: AbstractRequest.getErrorResponse.
// Each line of stdin: KEY VERSION ERROR HEX of the request's body. Each line of stdout: HEX of the response's body, "none"
// where Kafka has no response, "unreadable" and why where it does not read the request, or "defect" where its getErrorResponse fails.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

public class ErrorSide {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ", -1);
            System.out.println(responded(Short.parseShort(fields[0]), Short.parseShort(fields[1]),
                Short.parseShort(fields[2]), HexFormat.of().parseHex(fields[3])));
        }
    }

    static String responded(short key, short version, short error, byte[] body) {
        AbstractRequest request;
        try {
            request = AbstractRequest.parseRequest(ApiKeys.forId(key), version, ByteBuffer.wrap(body)).request;
        } catch (RuntimeException unreadable) {
            return "unreadable " + unreadable;
        }
        // A defect is no ApiException: its own words must not reach the client.
        Throwable problem = error == -1 ? new IllegalStateException("private") : Errors.forCode(error).exception();
        AbstractResponse response;
        try {
            response = request.getErrorResponse(0, problem);
        } catch (RuntimeException defect) {
            return "defect " + defect.getClass().getSimpleName();
        }
        if (response == null) {
            return "none";
        }
        ByteBuffer written = MessageUtil.toByteBuffer(response.data(), version);
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
