// org.apache.rocketmq:rocketmq-client-java:5.2.0
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        var provider = ClientServiceProvider.loadService();
        var settings = ClientConfiguration.newBuilder().setEndpoints("127.0.0.1:8080").enableSsl(false);
        var user = System.getenv("ROCKETMQ_ACCESS_KEY");
        if (user != null) {
            var secret = System.getenv("ROCKETMQ_SECRET_KEY");
            settings.setCredentialProvider(new StaticSessionCredentialsProvider(user, secret));
        }
        var endpoint = settings.build();
        provider.newPushConsumerBuilder()
            .setClientConfiguration(endpoint)
            .setConsumerGroup("demo-java-grpc")
            .setSubscriptionExpressions(Map.of("demo", FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                System.out.println(message);
                return ConsumeResult.SUCCESS;
            })
            .build();
        var producer = provider.newProducerBuilder().setClientConfiguration(endpoint).setTopics("demo").build();
        var message = provider.newMessageBuilder().setTopic("demo").setBody("hello from Java".getBytes()).build();
        System.out.println(producer.send(message).getMessageId());
    }
}
