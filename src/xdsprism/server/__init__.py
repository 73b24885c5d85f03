"""The server: everything that awaits on the downstream side, around the decisions of core/ and http2/.

Its modules, from the composition root to the sockets:

server                              puts store, hub and transport together: the public `Server`
hub, long_work, slicing             joins a store with the live streams; runs long work in slices
calls, methods                      the contract of a call, and every gRPC method as such calls
fetch, lrs, health, providers       calls beside the discovery streams; resource providers
engine_h2, connection_calls         gRPC on the transport of our own (http2/)
engine_grpcio, large_messages       gRPC on grpc.aio
http_port, http_deadlines           HTTP/1 ports, for REST and the admin pages
rest, rest_json                     xDS over REST
connection_limits, addresses        how many connections there may be; listen and peer addresses
tls, certificates                   TLS files: which are usable, and whom a certificate names
certificate_renewal                 watches these files
tls_listener, tls_transport         accepts and encrypts connections
"""
