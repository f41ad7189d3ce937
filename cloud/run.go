package cloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloudmanager"
	"github.com/kemudi/kemudi/internal/obs"
)

// Run runs the loops over the cloud that was registered by the name, as the flags in args
// say, until ctx ends. While it leads, the cloud's Initialize has been called, with clients of the same
// account; SetInformers too, for a cloud that has it.
func Run(ctx context.Context, name string, args []string) error {
	o := cloudmanager.Defaults()
	var logs obs.LogOptions
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	o.Controllers.Cloud.Name = name
	logs.AddFlags(f)
	o.AddFlags(f)
	if err := f.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	log, err := obs.NewLogger(os.Stderr, logs)
	if err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	obs.CaptureKlog(log)
	o.Logger = log
	return cloudmanager.Run(ctx, o, begin)
}

// resync is how often informers tell of everything anew.
const resync = 12 * time.Hour

// begin hands a cloud its clients.
func begin(ctx context.Context, provider cloudprovider.Interface, config *rest.Config) error {
	stop := make(chan struct{})
	context.AfterFunc(ctx, func() { close(stop) })
	clients := builder{config}
	if user, ok := provider.(cloudprovider.InformerUser); ok {
		client, err := clients.Client("shared-informers")
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, resync)
		provider.Initialize(clients, stop)
		user.SetInformers(factory)
		factory.Start(stop)
		return nil
	}
	provider.Initialize(clients, stop)
	return nil
}

// builder makes clients for a cloud, all of one account.
type builder struct{ config *rest.Config }

var _ cloudprovider.ControllerClientBuilder = builder{}

// Config is the configuration of a client of that name.
func (b builder) Config(name string) (*rest.Config, error) {
	return rest.AddUserAgent(rest.CopyConfig(b.config), name), nil
}

// ConfigOrDie is Config, which does not fail.
func (b builder) ConfigOrDie(name string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(b.config), name)
}

// Client is a client of that name.
func (b builder) Client(name string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(b.ConfigOrDie(name))
	if err != nil {
		return nil, fmt.Errorf("client %s of the cloud: %w", name, err)
	}
	return client, nil
}

// ClientOrDie is Client; what it is given has made a client before, so it does not die.
func (b builder) ClientOrDie(name string) kubernetes.Interface {
	client, err := b.Client(name)
	if err != nil {
		panic(err)
	}
	return client
}
