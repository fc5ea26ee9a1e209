// A replacement for csi-node-driver-registrar, whose module no proxy serves: it asks the driver for its name, and
// registers it with kubelet. Like that program, it removes the socket at its end, whoever listens there by then.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const folder = "/registration"

type server struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (s server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: s.name, Endpoint: s.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (s server) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("kubelet refuses the driver: %s", status.Error)
	}
	log.Printf("kubelet has registered %s", s.name)
	return &registration.RegistrationStatusResponse{}, nil
}

// name waits for the driver and asks for its name.
func name(address string) string {
	connection, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	return info.Name
}

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "socket of the driver, here")
	endpoint := flag.String("kubelet-registration-path", "", "socket of the driver, on the host")
	flag.Parse()
	driver := name(*address)
	socket := filepath.Join(folder, driver+"-reg.sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		_ = os.Remove(socket)
		os.Exit(0)
	}()
	grpcServer := grpc.NewServer()
	registration.RegisterRegistrationServer(grpcServer, server{name: driver, endpoint: *endpoint})
	log.Fatal(grpcServer.Serve(listener))
}
