package common

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Options are what every peer is told.
type Options struct {
	Resources, Size int
	cert, key       string
}

// Parse reads the command line.
func Parse() *Options {
	options := &Options{}
	flag.IntVar(&options.Resources, "resources", 1, "how many resources there are")
	flag.IntVar(&options.Size, "size", 1024, "bytes of each, about")
	flag.StringVar(&options.cert, "tls-cert", "", "a certificate, for TLS")
	flag.StringVar(&options.key, "tls-key", "", "its key")
	flag.Parse()
	return options
}

// Secure is what a gRPC server is made with.
func (options *Options) Secure() []grpc.ServerOption {
	if options.cert == "" {
		return nil
	}
	secrets, err := credentials.NewServerTLSFromFile(options.cert, options.key)
	if err != nil {
		log.Fatal(err)
	}
	return []grpc.ServerOption{grpc.Creds(secrets)}
}

// Serve prints `ready PORT`, then obeys `bump K V` on stdin: the next K resources get version V. Ends with stdin.
func Serve(server *grpc.Server, bump func(count, version int) error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(server.Serve(listener)) }()
	fmt.Printf("ready %d\n", listener.Addr().(*net.TCPAddr).Port)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var count, version int
		if _, err := fmt.Sscanf(lines.Text(), "bump %d %d", &count, &version); err != nil {
			fmt.Printf("error no such command: %q\n", lines.Text())
		} else if err := bump(count, version); err != nil {
			fmt.Printf("error %v\n", err)
		} else {
			fmt.Println("ok")
		}
	}
}
