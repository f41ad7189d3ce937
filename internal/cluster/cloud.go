package cluster

import (
	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/controllers"
)

// CloudProviders are the names of those that are built in.
func CloudProviders() []string { return cloud.Names() }

// openCloud gives the controllers their cloud, if they have one.
func (s *server) openCloud(o *controllers.Options) (err error) {
	if o.Cloud.Provider, err = cloud.Open(o.Cloud.Name, o.Cloud.ConfigFile); err != nil || o.Cloud.Provider == nil {
		return err
	}
	for _, lack := range o.Cloud.Lacks() {
		s.o.Logger.Warn("a loop of the cloud does not run", "controller", lack.Loop, "why", lack.Why)
	}
	return nil
}
