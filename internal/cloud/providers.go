package cloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/baremetal"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
)

// External stands for a cloud that another program takes care of.
const External = "external"

// opener makes a provider of its configuration, a file's path.
type opener func(file string) (cloudprovider.Interface, error)

func builtIn() map[string]opener {
	return map[string]opener{
		baremetal.Name: func(file string) (cloudprovider.Interface, error) { return baremetal.Open(file) },
		loopback.Name:  func(file string) (cloudprovider.Interface, error) { return loopback.Open(file) },
	}
}

// Names are the providers that are built in, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtIn())) }

// Check says what is wrong with a name that people have given (--cloud-provider).
func Check(name string) error {
	if name == "" || name == External || builtIn()[name] != nil {
		return nil
	}
	return fmt.Errorf("--cloud-provider %q is not built in: there are %s; for another one say %s, and run the program of its vendor beside",
		name, strings.Join(Names(), " and "), External)
}

// Open makes the provider of that name; nil: there is none to be run here.
func Open(name, file string) (cloudprovider.Interface, error) {
	if err := Check(name); err != nil || name == "" || name == External {
		return nil, err
	}
	p, err := builtIn()[name](file)
	if err != nil {
		return nil, fmt.Errorf("--cloud-provider %s: %w", name, err)
	}
	return p, nil
}
