package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Where plugins, and who asks about them, find what, below the root directory of the node agent: charts know it.
const (
	Dir          = "plugins"          // what they have themselves; volumes are staged here
	RegistryDir  = "plugins_registry" // their sockets
	DevicesDir   = "device-plugins"   // those of plugins with devices, and that at which they register
	ResourcesDir = "pod-resources"
	PodsDir      = "pods-api"
)

// Dirs are all of these.
func Dirs() []string { return []string{Dir, RegistryDir, DevicesDir, ResourcesDir} }

// The types of plugins.
const (
	CSI    = registerapi.CSIPlugin
	Device = registerapi.DevicePlugin
	DRA    = registerapi.DRAPlugin
)

// Plugin is a plugin as it says of itself.
type Plugin struct {
	Type, Name string
	Endpoint   string // the socket where it serves
	Socket     string // the one in the directory, which it registers by; often the same
	Versions   []string
}

// Handler takes plugins of one type. Calls about one socket are made one after another,
// those about different ones at the same time.
type Handler interface {
	// Register is told of a plugin. An error refuses it: the plugin is told why, and it is
	// tried again after a while, and when its socket is made anew. ctx ends when the socket goes.
	Register(ctx context.Context, p Plugin) error
	// Deregister is told that the socket of a plugin that was registered is gone.
	Deregister(p Plugin)
}

// callDeadline is how long a plugin has for one answer.
const callDeadline = 10 * time.Second

// Dial returns a connection to the program that serves at a socket. It is made when it is
// first used.
func Dial(socket string, with ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket, append(with, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// Serve answers plugins and others of this machine at a listener until ctx ends.
func Serve(ctx context.Context, s *grpc.Server, l net.Listener) error {
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil // it was told to end
}

// register asks the plugin at a socket who it is, hands it to its handler and tells it what
// became of that.
func register(ctx context.Context, socket string, handlers map[string]Handler) (Plugin, error) {
	conn, err := Dial(socket)
	if err != nil {
		return Plugin{}, err
	}
	defer conn.Close()
	c := registerapi.NewRegistrationClient(conn)
	info, err := ask(ctx, func(ctx context.Context) (*registerapi.PluginInfo, error) {
		return c.GetInfo(ctx, &registerapi.InfoRequest{})
	})
	if err != nil {
		return Plugin{}, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s, err: %w", socket, err)
	}
	p := Plugin{Type: info.Type, Name: info.Name, Endpoint: info.Endpoint, Socket: socket, Versions: info.SupportedVersions}
	if p.Endpoint == "" {
		p.Endpoint = socket
	}
	told := &registerapi.RegistrationStatus{PluginRegistered: true}
	refused := take(ctx, p, handlers)
	if refused != nil {
		told.PluginRegistered, told.Error = false, refused.Error()
	}
	_, err = ask(ctx, func(ctx context.Context) (*registerapi.RegistrationStatusResponse, error) {
		return c.NotifyRegistrationStatus(ctx, told)
	})
	switch {
	case refused != nil:
		return p, refused // it is of no matter whether it has heard why
	case err != nil:
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), errGone) { // else the agent ends, and finds it again (G3)
			handlers[p.Type].Deregister(p)
		}
		return p, fmt.Errorf("RegisterPlugin error -- failed to send registration status at socket %s, err: %w", socket, err)
	}
	return p, nil
}

// take hands a plugin to its handler.
func take(ctx context.Context, p Plugin, handlers map[string]Handler) error {
	h := handlers[p.Type]
	if h == nil {
		return fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s", p.Type, p.Socket)
	}
	if err := h.Register(ctx, p); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
	}
	return nil
}

// ask makes a call with a deadline.
func ask[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	return call(ctx)
}
