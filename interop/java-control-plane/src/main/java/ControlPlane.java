import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import com.google.protobuf.UInt32Value;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.core.v3.Address;
import io.envoyproxy.envoy.config.core.v3.AggregatedConfigSource;
import io.envoyproxy.envoy.config.core.v3.ApiVersion;
import io.envoyproxy.envoy.config.core.v3.ConfigSource;
import io.envoyproxy.envoy.config.core.v3.Locality;
import io.envoyproxy.envoy.config.core.v3.SocketAddress;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.endpoint.v3.Endpoint;
import io.envoyproxy.envoy.config.endpoint.v3.LbEndpoint;
import io.envoyproxy.envoy.config.endpoint.v3.LocalityLbEndpoints;
import io.envoyproxy.envoy.config.listener.v3.ApiListener;
import io.envoyproxy.envoy.config.listener.v3.Filter;
import io.envoyproxy.envoy.config.listener.v3.FilterChain;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.Route;
import io.envoyproxy.envoy.config.route.v3.RouteAction;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.config.route.v3.RouteMatch;
import io.envoyproxy.envoy.config.route.v3.VirtualHost;
import io.envoyproxy.envoy.extensions.filters.http.router.v3.Router;
import io.envoyproxy.envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager;
import io.envoyproxy.envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter;
import io.envoyproxy.envoy.extensions.filters.network.http_connection_manager.v3.Rds;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A control plane on java-control-plane: SotW and delta ADS, v3, for every node the same snapshot. {@code ControlPlane [PORT]}
 * prints {@code ready PORT}, then obeys one command per line of stdin and answers each with {@code ok} or {@code error REASON}. Ends with stdin.
 *
 * <pre>
 * cluster NAME SECONDS    a cluster with this connect_timeout, whose endpoints come by EDS
 * endpoint CLUSTER PORT   its one endpoint
 * route NAME CLUSTER      a route configuration that sends everything to the cluster
 * listener NAME           an API listener that takes the route configuration of the same name by RDS
 * service NAME            the same with what gRPC insists on
 * gateway NAME            the same for Envoy, on a free port
 * delete KIND NAME        KIND is one of the words above
 * publish                 makes all of the above visible at once, as the next version
 * </pre>
 */
public final class ControlPlane {
  private static final String GROUP = "all";

  private final SimpleCache<String> snapshots = new SimpleCache<>(node -> GROUP);
  private final Map<String, Cluster> clusters = new TreeMap<>();
  private final Map<String, ClusterLoadAssignment> endpoints = new TreeMap<>();
  private final Map<String, RouteConfiguration> routes = new TreeMap<>();
  private final Map<String, Listener> listeners = new TreeMap<>();
  /** What versions begin with: those of an earlier process are others. */
  private final String started = Long.toString(System.nanoTime(), 36);
  private int version;

  public static void main(String[] args) throws IOException {
    ControlPlane plane = new ControlPlane();
    int port = args.length > 0 ? Integer.parseInt(args[0]) : 0;
    Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
        .addService(new V3DiscoveryServer(plane.snapshots).getAggregatedDiscoveryServiceImpl())
        .build()
        .start();
    System.out.println("ready " + server.getPort());
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      System.out.println(plane.answer(line));
    }
    System.exit(0); // the server's threads would keep the process alive
  }

  private String answer(String line) {
    try {
      obey(line.trim().split("\\s+"));
      return "ok";
    } catch (RuntimeException wrong) {
      return "error " + wrong;
    }
  }

  private void obey(String[] words) {
    switch (words[0] + " " + (words.length - 1)) {
      case "cluster 2" -> clusters.put(words[1], cluster(words[1], Integer.parseInt(words[2])));
      case "endpoint 2" -> endpoints.put(words[1], endpoint(words[1], Integer.parseInt(words[2])));
      case "route 2" -> routes.put(words[1], route(words[1], words[2]));
      case "listener 1", "service 1", "gateway 1" -> listeners.put(words[1], listener(words[0], words[1]));
      case "delete 2" -> ofKind(words[1]).remove(words[2]);
      case "publish 0" -> publish();
      default -> throw new IllegalArgumentException("no such command: " + String.join(" ", words));
    }
  }

  private Map<String, ? extends Message> ofKind(String kind) {
    return switch (kind) {
      case "cluster" -> clusters;
      case "endpoint" -> endpoints;
      case "route" -> routes;
      case "listener", "service", "gateway" -> listeners;
      default -> throw new IllegalArgumentException("no such kind: " + kind);
    };
  }

  private void publish() {
    version++;
    snapshots.setSnapshot(GROUP, Snapshot.create(
        List.copyOf(clusters.values()),
        List.copyOf(endpoints.values()),
        List.copyOf(listeners.values()),
        List.copyOf(routes.values()),
        List.of(),
        started + "." + version));
  }

  private static Cluster cluster(String name, int connectTimeout) {
    return Cluster.newBuilder()
        .setName(name)
        .setConnectTimeout(Duration.newBuilder().setSeconds(connectTimeout))
        .setType(Cluster.DiscoveryType.EDS)
        .setEdsClusterConfig(Cluster.EdsClusterConfig.newBuilder().setEdsConfig(ads()))
        .build();
  }

  private static ClusterLoadAssignment endpoint(String cluster, int port) {
    SocketAddress address = SocketAddress.newBuilder().setAddress("127.0.0.1").setPortValue(port).build();
    Endpoint host = Endpoint.newBuilder().setAddress(Address.newBuilder().setSocketAddress(address)).build();
    return ClusterLoadAssignment.newBuilder()
        .setClusterName(cluster)
        .addEndpoints(LocalityLbEndpoints.newBuilder()
            .addLbEndpoints(LbEndpoint.newBuilder().setEndpoint(host))
            .setLocality(Locality.newBuilder().setRegion("here"))
            .setLoadBalancingWeight(UInt32Value.of(1)))
        .build();
  }

  private static RouteConfiguration route(String name, String cluster) {
    Route everything = Route.newBuilder()
        .setMatch(RouteMatch.newBuilder().setPrefix("/"))
        .setRoute(RouteAction.newBuilder().setCluster(cluster))
        .build();
    return RouteConfiguration.newBuilder()
        .setName(name)
        .addVirtualHosts(VirtualHost.newBuilder().setName("all").addDomains("*").addRoutes(everything))
        .build();
  }

  private static Listener listener(String kind, String name) {
    HttpConnectionManager.Builder connections = HttpConnectionManager.newBuilder()
        .setStatPrefix(name)
        .setRds(Rds.newBuilder().setRouteConfigName(name).setConfigSource(ads()));
    if (!kind.equals("listener")) {
      connections.addHttpFilters(HttpFilter.newBuilder()
          .setName("envoy.filters.http.router")
          .setTypedConfig(Any.pack(Router.getDefaultInstance())));
    }
    Any packed = Any.pack(connections.build());
    Listener.Builder made = Listener.newBuilder().setName(name);
    if (!kind.equals("gateway")) {
      return made.setApiListener(ApiListener.newBuilder().setApiListener(packed)).build();
    }
    return made
        .setAddress(Address.newBuilder()
            .setSocketAddress(SocketAddress.newBuilder().setAddress("127.0.0.1").setPortValue(0)))
        .addFilterChains(FilterChain.newBuilder().addFilters(Filter.newBuilder()
            .setName("envoy.filters.network.http_connection_manager")
            .setTypedConfig(packed)))
        .build();
  }

  private static ConfigSource ads() {
    return ConfigSource.newBuilder()
        .setResourceApiVersion(ApiVersion.V3)
        .setAds(AggregatedConfigSource.getDefaultInstance())
        .build();
  }
}
