// Kafka's AclAuthorizer without ZooKeeper: lists and questions on stdin, a line with 1 or 0 for each question on stdout.
// Lines have tabs between their fields:
//   reset  SUPER_USERS  ALLOW_EVERYONE
//   list   TYPE  NAME  PATTERN  PRINCIPAL  HOST  OPERATION  PERMISSION
//   may    PRINCIPAL  HOST  OPERATION  TYPE  NAME
//   any    PRINCIPAL  HOST  OPERATION  TYPE
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class AuthorizerSide {
    record Caller(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    static void set(Object owner, String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(owner, value);
    }

    static Caller caller(String principal, String host) throws Exception {
        return new Caller(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        AclAuthorizer authorizer = null;
        Map<ResourcePattern, Set<AclEntry>> lists = new HashMap<>();
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] part = line.split("\t", -1);
            switch (part[0]) {
                case "reset" -> {
                    authorizer = new AclAuthorizer();
                    lists.clear();
                    Set<KafkaPrincipal> users = new HashSet<>();
                    for (String user : part[1].split(";")) if (!user.isEmpty()) users.add(SecurityUtils.parseKafkaPrincipal(user));
                    set(authorizer, "superUsers", scala.jdk.javaapi.CollectionConverters.asScala(users).toSet());
                    set(authorizer, "shouldAllowEveryoneIfNoAclIsFound", Boolean.parseBoolean(part[2]));
                }
                case "list" -> {
                    ResourcePattern pattern = new ResourcePattern(
                        ResourceType.valueOf(part[1]), part[2], PatternType.valueOf(part[3]));
                    lists.computeIfAbsent(pattern, one -> new HashSet<>()).add(new AclEntry(new AccessControlEntry(
                        part[4], part[5], AclOperation.valueOf(part[6]), AclPermissionType.valueOf(part[7]))));
                    scala.collection.immutable.Set<AclEntry> entries =
                        scala.jdk.javaapi.CollectionConverters.asScala(new HashSet<>(lists.get(pattern))).toSet();
                    authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(entries, 0));
                }
                case "may" -> {
                    Action action = new Action(AclOperation.valueOf(part[3]),
                        new ResourcePattern(ResourceType.valueOf(part[4]), part[5], PatternType.LITERAL), 1, false, false);
                    List<AuthorizationResult> found = authorizer.authorize(caller(part[1], part[2]), List.of(action));
                    output.append(found.get(0) == AuthorizationResult.ALLOWED ? '1' : '0').append('\n');
                }
                case "any" -> {
                    AuthorizationResult found = authorizer.authorizeByResourceType(
                        caller(part[1], part[2]), AclOperation.valueOf(part[3]), ResourceType.valueOf(part[4]));
                    output.append(found == AuthorizationResult.ALLOWED ? '1' : '0').append('\n');
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(output);
    }
}
