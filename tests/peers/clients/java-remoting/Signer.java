import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Signs requests like the official AclClientRPCHook, which 4.9 clients have in a library of their own. */
final class Signer implements RPCHook {
    private final String accessKey;
    private final SecretKeySpec secretKey;
    private final String securityToken;

    private Signer(String accessKey, String secretKey, String securityToken) {
        this.accessKey = accessKey;
        this.securityToken = securityToken;
        this.secretKey = new SecretKeySpec(secretKey.getBytes(StandardCharsets.UTF_8), "HmacSHA1");
    }

    /** The hook of the run's credentials; null without credentials. */
    static RPCHook of(Options options) {
        if (options.accessKey() == null) {
            return null;
        }
        try {
            Class<?> session = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
            Object credentials = session.getConstructor(String.class, String.class, String.class)
                .newInstance(options.accessKey(), options.secretKey(), options.securityToken());
            return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook")
                .getConstructor(session).newInstance(credentials);
        } catch (ClassNotFoundException missing) {
            return new Signer(options.accessKey(), options.secretKey(), options.securityToken());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        request.addExtField("AccessKey", accessKey);
        if (securityToken != null) {
            request.addExtField("SecurityToken", securityToken);
        }
        request.makeCustomHeaderToNet();
        Map<String, String> fields = new TreeMap<>(request.getExtFields());
        fields.remove("Signature");
        try {
            Mac mac = Mac.getInstance("HmacSHA1");
            mac.init(secretKey);
            mac.update(String.join("", fields.values()).getBytes(StandardCharsets.UTF_8));
            byte[] body = request.getBody();
            byte[] signature = body == null ? mac.doFinal() : mac.doFinal(body);
            request.addExtField("Signature", Base64.getEncoder().encodeToString(signature));
        } catch (java.security.GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
    }
}
