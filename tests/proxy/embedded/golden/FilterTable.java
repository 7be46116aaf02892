import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What RocketMQ's own parser makes of the expressions in a file, one a line, for each of the property sets in
 * another (`key=value;key=value`, one a line). Prints a line per expression: `X` where it cannot be parsed, else
 * for each property set T (matches) or F (does not).
 *
 * java -cp 'JARS/*' FilterTable.java expressions.txt properties.txt > results.txt
 */
public class FilterTable {
    public static void main(String[] arguments) throws Exception {
        List<Map<String, String>> sets = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
            Map<String, String> set = new HashMap<>();
            for (String pair : line.split(";")) {
                int at = pair.indexOf('=');
                if (at > 0) {
                    set.put(pair.substring(0, at), pair.substring(at + 1));
                }
            }
            sets.add(set);
        }
        StringBuilder out = new StringBuilder();
        for (String expression : Files.readAllLines(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
            out.append(evaluate(expression, sets)).append('\n');
        }
        System.out.print(out);
    }

    private static String evaluate(String text, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable error) {
            return "X";
        }
        StringBuilder line = new StringBuilder();
        for (Map<String, String> set : sets) {
            line.append(matches(expression, set) ? 'T' : 'F');
        }
        return line.toString();
    }

    private static boolean matches(Expression expression, Map<String, String> set) {
        EvaluationContext context = new EvaluationContext() {
            @Override
            public Object get(String name) {
                return set.get(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return new HashMap<>(set);
            }
        };
        try {
            Object value = expression.evaluate(context);
            return value instanceof Boolean && (Boolean) value;
        } catch (Throwable error) {
            return false;
        }
    }
}
