import com.google.gson.Gson;
import com.google.gson.JsonParser;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Opens calls on one channel as it is told, and prints what comes of them.
 *
 * <p>Usage: {@code java Streams ADDRESS WINDOW}. WINDOW is that of streams and of the connection, in bytes; 0: what gRPC
 * likes best. Orders and events are those of ../../../../../go/streams/main.go.
 */
public final class Streams {
  private static final Gson GSON = new Gson();
  private static final Map<Integer, Call> CALLS = new HashMap<>();

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

  private static final class Order {
    String method;
    int call;
    double deadline;
    boolean held;
    String body;
  }

  private static synchronized void report(int call, Map<String, Object> event) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("call", call);
    line.putAll(event);
    System.out.println(GSON.toJson(line));
  }

  /** One call; messages are asked for one by one, from when it may be read. */
  private static final class Call extends ClientCall.Listener<byte[]> {
    private final int number;
    private final ClientCall<byte[], byte[]> call;

    Call(Channel channel, Order asked) {
      var method = MethodDescriptor.<byte[], byte[]>newBuilder()
          .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
          .setFullMethodName(asked.method.substring(1))
          .setRequestMarshaller(BYTES)
          .setResponseMarshaller(BYTES)
          .build();
      CallOptions options = CallOptions.DEFAULT.withWaitForReady();
      if (asked.deadline > 0) {
        options = options.withDeadlineAfter((long) (asked.deadline * 1000), TimeUnit.MILLISECONDS);
      }
      number = asked.call;
      call = channel.newCall(method, options);
      call.start(this, new Metadata());
      if (!asked.held) {
        call.request(1);
      }
    }

    @Override
    public void onMessage(byte[] body) {
      report(number, Map.of("message", Base64.getEncoder().encodeToString(body)));
      call.request(1);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      String details = status.getDescription() == null ? "" : status.getDescription();
      report(number, Map.of("status", status.getCode().value(), "details", details));
    }
  }

  private static void obey(Channel channel, String name, Order asked) {
    switch (name) {
      case "open" -> CALLS.put(asked.call, new Call(channel, asked));
      case "send" -> CALLS.get(asked.call).call.sendMessage(Base64.getDecoder().decode(asked.body));
      case "read" -> CALLS.get(asked.call).call.request(1);
      case "finish" -> CALLS.get(asked.call).call.halfClose();
      case "cancel" -> CALLS.get(asked.call).call.cancel("told to", null);
      default -> throw new IllegalArgumentException("no such order: " + name);
    }
  }

  public static void main(String[] args) throws IOException {
    var builder = NettyChannelBuilder.forTarget(args[0]).usePlaintext().maxInboundMessageSize(Integer.MAX_VALUE);
    int window = Integer.parseInt(args[1]);
    if (window > 0) {
      builder.flowControlWindow(window);
    }
    ManagedChannel channel = builder.build();
    // The waits between two tries grow to two minutes, and there is no option for that.
    Executors.newSingleThreadScheduledExecutor()
        .scheduleWithFixedDelay(channel::resetConnectBackoff, 500, 500, TimeUnit.MILLISECONDS);
    var orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      var json = JsonParser.parseString(line).getAsJsonObject();
      obey(channel, json.get("do").getAsString(), GSON.fromJson(json, Order.class));
    }
    System.exit(0); // stdin is closed: the test is over
  }
}
