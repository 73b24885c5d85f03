import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.GsonBuilder;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Calls {@code xds:///svc} for ever and prints one line of JSON per call: {"method", "reply", "error"}.
 *
 * <p>The control plane and the node's metadata come from GRPC_XDS_BOOTSTRAP_CONFIG, as for any gRPC program.
 * Usage: {@code java Client TARGET METHOD...}. Each METHOD is called in turn, as /echo.Echo/METHOD with raw bytes.
 */
public final class Client {
  private static final long PAUSE_MS = 50;
  private static final long DEADLINE_MS = 2000;

  /** Passes bytes through, so that no generated message types are needed. */
  private static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException broken) {
        throw new UncheckedIOException(broken);
      }
    }
  };

  private static MethodDescriptor<byte[], byte[]> unary(String method) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("echo.Echo/" + method)
        .setRequestMarshaller(BYTES)
        .setResponseMarshaller(BYTES)
        .build();
  }

  private static Map<String, String> call(Channel channel, String method) {
    Map<String, String> outcome = new LinkedHashMap<>();
    outcome.put("method", method);
    outcome.put("reply", null);
    outcome.put("error", null);
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(DEADLINE_MS, TimeUnit.MILLISECONDS);
    try {
      byte[] reply = ClientCalls.blockingUnaryCall(channel, unary(method), options, "hello".getBytes(UTF_8));
      outcome.put("reply", new String(reply, UTF_8));
    } catch (StatusRuntimeException failed) {
      outcome.put("error", failed.getStatus().getCode() + ": " + failed.getStatus().getDescription());
    }
    return outcome;
  }

  public static void main(String[] args) throws InterruptedException {
    var gson = new GsonBuilder().serializeNulls().create();
    var channel = Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
    // A PrintStream swallows a closed pipe: without the check this program would outlive the test that reads it.
    for (int turn = 0; !System.out.checkError(); turn++) {
      System.out.println(gson.toJson(call(channel, args[1 + turn % (args.length - 1)])));
      Thread.sleep(PAUSE_MS);
    }
    System.exit(0);
  }
}
