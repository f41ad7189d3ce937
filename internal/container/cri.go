package container

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI is a container runtime, reached through the container runtime interface.
// Its clients may be used by many goroutines at once.
type CRI struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient

	conn grpc.ClientConnInterface
}

func newCRI(conn grpc.ClientConnInterface) *CRI {
	return &CRI{Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn), conn: conn}
}

// maxMessage bounds one CRI message: a list of all containers of a full node
// is far larger than gRPC's default of 4 MB.
const maxMessage = 64 << 20

// Dial connects to the CRI socket at endpoint, which is a path or
// unix:///path (the form of --container-runtime-endpoint). It does not wait
// for the runtime: the first calls do. Close the closer when done.
func Dial(endpoint string) (*CRI, io.Closer, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, nil, fmt.Errorf("container runtime endpoint %q is not a unix socket: want unix:///path", endpoint)
	}
	conn, err := dial(path)
	if err != nil {
		return nil, nil, err
	}
	return newCRI(conn), conn, nil
}

func dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage), grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("dial container runtime %s: %w", path, err)
	}
	return conn, nil
}
