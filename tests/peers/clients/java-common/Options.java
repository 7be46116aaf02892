import java.util.HashMap;
import java.util.Map;

/** The command line that all clients share: ACTION N --name value ... */
final class Options {
    final String action;
    final int count;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] words) {
        if (words.length < 2) {
            throw new IllegalArgumentException("usage: ACTION N --endpoint HOST:PORT --topic T [--option value]");
        }
        action = words[0];
        count = Integer.parseInt(words[1]);
        for (int i = 2; i < words.length; i++) {
            String name = words[i].substring(2);
            boolean flag = i + 1 == words.length || words[i + 1].startsWith("--");
            values.put(name, flag ? "true" : words[++i]);
        }
    }

    void set(String name, String value) {
        values.put(name, value);
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(get(name, Integer.toString(otherwise)));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(get(name, "false"));
    }

    String endpoint() {
        return get("endpoint", "127.0.0.1:8080");
    }

    String topic() {
        return get("topic", "peers-normal");
    }

    String group() {
        return get("group", "peers-group");
    }

    /** The user; null without credentials. */
    String accessKey() {
        return System.getenv("PEERS_ACCESS_KEY");
    }

    String secretKey() {
        return System.getenv("PEERS_SECRET_KEY");
    }

    /** The token of temporary credentials; null without. */
    String securityToken() {
        return System.getenv("PEERS_SECURITY_TOKEN");
    }

    /** What is sent and how; "sync" is another word for "normal". */
    String kind() {
        String kind = get("kind", "normal");
        return kind.equals("sync") ? "normal" : kind;
    }

    boolean kind(String name) {
        return kind().equals(name);
    }

    String mode() {
        return get("mode", "push");
    }

    String run() {
        return get("run", "run");
    }

    int size() {
        return number("size", kind("compressed") ? 20 * 1024 : 256);
    }

    int delayMillis() {
        return number("delay", kind("recall") ? 8000 : 3000);
    }

    int timeoutSeconds() {
        return number("timeout", 60);
    }

    int concurrency() {
        return number("concurrency", 64);
    }

    /** The tag expression to subscribe with. */
    String tags() {
        return get("tags", kind("tags") ? "tag0 || tag2" : "*");
    }

    /** How many times each message must arrive: once per receiver, or per way to query it. */
    int copies() {
        return action.equals("query") ? 3 : mode().equals("broadcast") ? 2 : 1;
    }

    /** Whether the message of this number must arrive, rather than must not. */
    boolean expects(int index) {
        return switch (kind()) {
            case "tags" -> index % 3 != 1;
            case "sql" -> 3 <= index && index <= 7;
            case "dlq", "fifo-dlq" -> index != 0;
            case "recall" -> index % 2 == 0;
            default -> true;
        };
    }

    /** Extra messages, after the counted ones, whose transaction is rolled back. */
    int rolledBack() {
        return kind("transaction") || kind("transaction-recovery") ? 1 + count / 10 : 0;
    }
}
