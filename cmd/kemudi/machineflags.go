package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
)

// ofOneMachine are flags that no two machines of a cluster on one machine can share: who and where each
// is, what it begins with, and what it writes to.
var ofOneMachine = []string{
	"address", "advertise-address", "audit-log-path", "bind-address", "container-runtime-endpoint", "data-dir", "ephemeral", "from-etcd", "from-pki",
	"node-ip", "node-name", "peer-address", "pod-logs-dir", "proxy-healthz-bind-address", "proxy-metrics-bind-address", "root-dir", "run-dir", "server", "token", "token-file",
}

// ofOneRole are flags that say what is to run on a node. Those of servers are not those of agents.
var ofOneRole = []string{"node-labels", "register-with-taints"}

// ofFirstServer are flags by which containers have processors and memory for themselves: all machines have the
// same ones, and two that know nothing of each other would give them out twice. Package fleet turns it off elsewhere.
var ofFirstServer = []string{"cpu-manager-policy", "cpu-manager-policy-options", "memory-manager-policy", "reserved-memory"}

// machineFlags are the flags of the machines of a cluster on this one.
type machineFlags struct {
	first   []string // of the server that has this machine itself: as they were said
	servers []string // of further servers
	agents  []string
}

// flagsOfMachines are what follows -- on the command line of up: flags of the servers, and behind another
// -- flags of agents. Flags of the servers hold for agents, too, unless agents do not have them, servers tell
// agents themselves, or they say what is to run on the node (labels, taints). Flags of agents go before them.
func flagsOfMachines(up *cobra.Command, args []string) (m machineFlags, _ error) {
	var own []string
	m.first = args
	if i := slices.Index(args, "--"); i >= 0 {
		m.first, own = args[:i:i], args[i+1:]
	}
	servers, err := saidOf(up, "server", m.first)
	if err != nil {
		return m, err
	}
	agents, err := saidOf(up, "agent", own)
	if err != nil {
		return m, err
	}
	known := flagsOf(up, "agent")
	told := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	addSettingsFlags(told, new(cluster.AgentOptions))
	for _, s := range servers {
		if slices.Contains(ofOneMachine, s.flag) || slices.Contains(ofFirstServer, s.flag) {
			continue
		}
		m.servers = append(m.servers, s.String())
		if known.Lookup(s.flag) != nil && told.Lookup(s.flag) == nil && !slices.Contains(ofOneRole, s.flag) && !slices.ContainsFunc(agents, s.sameFlag) {
			m.agents = append(m.agents, s.String())
		}
	}
	for _, s := range agents {
		if slices.Contains(ofOneMachine, s.flag) {
			return m, errUsage{fmt.Errorf("--%s behind the second --: each agent has its own", s.flag)}
		}
		if slices.Contains(ofFirstServer, s.flag) {
			return m, errUsage{fmt.Errorf("--%s behind the second --: only the first server gives out processors and memory of this machine", s.flag)}
		}
		m.agents = append(m.agents, s.String())
	}
	return m, nil
}

// said is a flag that was given, with its value.
type said struct{ flag, value string }

func (s said) String() string       { return "--" + s.flag + "=" + s.value }
func (s said) sameFlag(o said) bool { return s.flag == o.flag }

// saidOf reads what is to be on the command line of another command.
func saidOf(c *cobra.Command, name string, args []string) (list []said, _ error) {
	flags := flagsOf(c, name)
	err := flags.ParseAll(args, func(f *pflag.Flag, value string) error {
		list = append(list, said{f.Name, value})
		return flags.Set(f.Name, value)
	})
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		return nil, errUsage{fmt.Errorf("flags of kemudi %s: %w", name, err)}
	}
	return list, nil
}

// flagsOf are the flags of another command.
func flagsOf(c *cobra.Command, name string) *pflag.FlagSet {
	commands := c.Root().Commands()
	of := commands[slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == name })]
	of.Flags().AddFlagSet(of.InheritedFlags())
	return of.Flags()
}
