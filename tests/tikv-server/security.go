// TLS with certificates on both sides.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// security holds the paths of the certificate files.
type security struct{ ca, cert, key string }

func (s security) wanted() bool { return s.ca != "" }

func (s security) scheme() string {
	if s.wanted() {
		return "https://"
	}
	return "http://"
}

func (s security) option() grpc.ServerOption {
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(s.ca)
	if err != nil {
		log.Fatal(err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(text) {
		log.Fatalf("no certificate in %s", s.ca)
	}
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    clients,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}))
}
