package cluster

import (
	"fmt"
	"os"

	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/scheduler/config"
)

// Scheduling says how pods are put on nodes, each field by its flag.
type Scheduling struct {
	ConfigFile   string // --scheduler-config
	NodesToScore int    // --percentage-of-nodes-to-score: of profiles that say nothing of it
}

// config is the configuration of the scheduler. What flags say of elections goes before its file.
func (s *Scheduling) config(election leader.Settings) (*config.Config, error) {
	if s.NodesToScore < 0 || s.NodesToScore > 100 {
		return nil, fmt.Errorf("--percentage-of-nodes-to-score %d is not between 0 and 100", s.NodesToScore)
	}
	c := config.Default()
	if s.ConfigFile != "" {
		data, err := os.ReadFile(s.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--scheduler-config: %w", err)
		}
		if c, err = config.Parse(data); err != nil {
			return nil, fmt.Errorf("--scheduler-config %s: %w", s.ConfigFile, err)
		}
	}
	c.LeaderElection = election.Over(c.LeaderElection, 1)
	if err := c.LeaderElection.Check(); err != nil {
		return nil, fmt.Errorf("leader election of the scheduler, by flags and by --scheduler-config: %w", err)
	}
	for i := range c.Profiles {
		if p := &c.Profiles[i]; p.PercentageOfNodesToScore == 0 {
			p.PercentageOfNodesToScore = s.NodesToScore
		}
	}
	return c, nil
}
