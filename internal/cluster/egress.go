package cluster

import (
	"errors"
	"fmt"

	"github.com/kemudi/kemudi/internal/reach/egress"
)

// openEgress has nodes, pods and services reached by a proxy, if a file names one.
func (s *server) openEgress() (err error) {
	if s.o.API.EgressFile == "" {
		return nil
	}
	if s.egress, err = egress.Read(s.o.API.EgressFile); err != nil {
		return fmt.Errorf("--egress-selector-config-file: %w", err)
	}
	if s.egress != nil && s.o.SSH.User != "" {
		return errors.New("--egress-selector-config-file and --ssh-user: nodes are reached by one of them")
	}
	if s.egress != nil {
		s.egress.Metrics = egress.NewMetrics(s.registry)
	}
	return nil
}
