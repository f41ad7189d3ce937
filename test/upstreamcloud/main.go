package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kemudi/kemudi/internal/cloud/loopback"
)

func main() {
	cloudprovider.RegisterCloudProvider(loopback.Name, open)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "upstreamcloud:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("make the options: %w", err)
	}
	initialize := func(c *config.CompletedConfig) cloudprovider.Interface {
		said := c.ComponentConfig.KubeCloudShared.CloudProvider
		cloud, err := cloudprovider.InitCloudProvider(said.Name, said.CloudConfigFile)
		if err != nil {
			panic(err) // the framework takes no error here
		}
		return cloud
	}
	stop := genericapiserver.SetupSignalHandler()
	return app.NewCloudControllerManagerCommand(o, initialize, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, stop).Execute()
}

// open opens the cloud of the file that upstream has opened.
func open(config io.Reader) (cloudprovider.Interface, error) {
	file, ok := config.(*os.File)
	if !ok {
		return nil, errors.New("want a file with its machines (--cloud-config)")
	}
	return loopback.Open(file.Name())
}
