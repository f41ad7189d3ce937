package cluster

import (
	"errors"
	"fmt"

	"github.com/kemudi/kemudi/internal/reach/egress"
)

// openEgress has nodes, pods and services, the store, and what decides for the control plane, reached by proxies, as far as a file
// names them.
func (s *server) openEgress() (err error) {
	if s.o.API.EgressFile == "" {
		return nil
	}
	if s.egress, err = egress.Read(s.o.API.EgressFile); err != nil {
		return fmt.Errorf("--egress-selector-config-file: %w", err)
	}
	if s.egress[egress.Cluster] != nil && s.o.SSH.User != "" {
		return errors.New("--egress-selector-config-file and --ssh-user: nodes are reached by one of them")
	}
	if s.egress[egress.Store] != nil && len(s.o.Etcd.Servers) == 0 {
		return errors.New("--egress-selector-config-file: there is a proxy for etcd, and this server keeps its store itself: want --etcd-servers, or Direct")
	}
	if len(s.egress) > 0 {
		m := egress.NewMetrics(s.registry)
		for _, p := range s.egress {
			p.Metrics = m
		}
	}
	return nil
}
