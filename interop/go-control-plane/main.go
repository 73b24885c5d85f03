// Control planes that know nothing of dynamic parameters: SotW and delta ADS, v3. `control-plane KIND [PORT]`, where KIND is
//
//	snapshot    go-control-plane's SnapshotCache, with a snapshot for each env that nodes have in their metadata
//	sotw        the same without the delta method
//	linear      go-control-plane's LinearCache for each type, behind its MuxCache
//	watched     no cache of versions at all: see watched.go
//
// Prints `ready PORT`, then obeys one command per line of stdin and answers each with `ok` or `error REASON`. Ends with stdin.
// Clients are answered from the first publish on.
//
//	cluster NAME SECONDS    a cluster with this connect_timeout, whose endpoints come by EDS
//	endpoint CLUSTER PORT   its one endpoint
//	route NAME CLUSTER      a route configuration that sends everything to the cluster
//	listener NAME           an API listener that takes the route configuration of the same name by RDS
//	service NAME            the same with what gRPC insists on
//	gateway NAME            the same for Envoy, on a free port
//	delete KIND NAME        KIND is one of the words above
//	in ENV COMMAND          one of the above for nodes of this env, who see nothing else; only with snapshots
//	publish                 makes all of the above visible at once, as the next version
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// everybody is the group of those who have no group of their own.
const everybody = "*"

// started is what versions begin with: those of an earlier process are others.
var started = strconv.FormatInt(time.Now().UnixNano(), 36)

// plane is a control plane of one kind.
type plane interface {
	service() discovery.AggregatedDiscoveryServiceServer
	publish(version string, byEnv map[string]contents) error
}

// withoutDelta has one method only.
type withoutDelta struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	all discovery.AggregatedDiscoveryServiceServer
}

func (service withoutDelta) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return service.all.StreamAggregatedResources(stream)
}

// controlPlane obeys commands.
type controlPlane struct {
	plane   plane
	byEnv   map[string]contents
	version int
}

func (control *controlPlane) of(env string) contents {
	if control.byEnv[env] == nil {
		control.byEnv[env] = newContents()
	}
	return control.byEnv[env]
}

// obey carries out one command.
func (control *controlPlane) obey(line string) error {
	words := strings.Fields(line)
	if len(words) == 1 && words[0] == "publish" {
		control.version++
		return control.plane.publish(fmt.Sprint(started, ".", control.version), control.byEnv)
	}
	env := everybody
	if len(words) > 2 && words[0] == "in" {
		env, words = words[1], words[2:]
	}
	resources := control.of(env)
	switch {
	case len(words) == 3 && words[0] == "delete" && typeURLs[words[1]] != "":
		delete(resources[typeURLs[words[1]]], words[2])
		return nil
	case len(words) >= 2 && typeURLs[words[0]] != "":
		made, err := build(words[0], words[1], words[2:])
		if err == nil {
			resources[typeURLs[words[0]]][words[1]] = made
		}
		return err
	}
	return fmt.Errorf("no such command: %q", line)
}

func start(kind string) (plane, discovery.AggregatedDiscoveryServiceServer) {
	switch kind {
	case "snapshot", "sotw":
		made := newSnapshotPlane()
		if kind == "sotw" {
			return made, withoutDelta{all: made.service()}
		}
		return made, made.service()
	case "linear":
		made := newLinearPlane()
		return made, made.service()
	case "watched":
		made := newWatchedPlane()
		return made, made.service()
	}
	log.Fatalf("no such kind of control plane: %q", kind)
	return nil, nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: control-plane snapshot|sotw|linear|watched [PORT]")
	}
	plane, service := start(os.Args[1])
	port := "0"
	if len(os.Args) > 2 {
		port = os.Args[2]
	}
	socket, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		log.Fatal(err)
	}
	transport := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(transport, service)
	// Whoever connects before the first version would learn that there is nothing.
	serve := sync.OnceFunc(func() { go func() { log.Fatal(transport.Serve(socket)) }() })

	fmt.Println("ready", socket.Addr().(*net.TCPAddr).Port)
	control := &controlPlane{plane: plane, byEnv: map[string]contents{everybody: newContents()}}
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		if err := control.obey(commands.Text()); err != nil {
			fmt.Println("error", err)
			continue
		}
		if control.version > 0 {
			serve()
		}
		fmt.Println("ok")
	}
}
