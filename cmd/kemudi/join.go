package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/up"
)

// joining is what up is told of a cluster that this machine is to join.
type joining struct {
	servers          []string
	as               purposeFlag
	token, tokenFile string
}

func (j *joining) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&j.servers, "join", j.servers, "address or URL of a server of the cluster that this machine is to join, or of several; port 6443 unless it is said")
	f.Var(&j.as, "join-as", "what it is to become there: agent, or server, which is an agent too")
	f.StringVar(&j.token, "token", j.token, "token to join by; others on this machine may see it here: prefer --token-file, or KEMUDI_TOKEN")
	obs.Classify(f, "token")
	f.StringVar(&j.tokenFile, "token-file", j.tokenFile, "file with the token")
	if err := c.RegisterFlagCompletionFunc("join-as", cobra.FixedCompletions([]string{"agent", "server"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is there: see above
	}
}

// settle notes what is to be joined, and says what this machine is or is to be.
func (j *joining) settle(c *cobra.Command, o *up.Options) (role string, err error) {
	if len(j.servers) == 0 {
		if c.Flags().Changed("join-as") {
			return "", errUsage{errors.New("--join-as says what this machine is to become in the cluster of --join")}
		}
		return up.RoleOf(o.DataDir)
	}
	t, err := readToken(j.token, j.tokenFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if t == (join.Token{}) { // as on a machine whose file of settings has it join, when the token is gone
		if is, look := up.RoleOf(o.DataDir); look != nil || is == j.as.String() {
			return is, look
		}
		if err != nil {
			return "", err
		}
		return "", errUsage{errors.New("--join needs a token (--token-file, --token): kemudi token create makes one, on a server")}
	}
	for _, other := range []string{"servers", "agents", "ephemeral", "from-etcd", "from-pki"} {
		if c.Flags().Changed(other) {
			return "", errUsage{fmt.Errorf("--join and --%s: that is for a cluster that begins on this machine", other)}
		}
	}
	o.Invitation = &up.Invitation{Role: j.as.String(), Servers: j.servers, Token: t.String()}
	return j.as.String(), nil
}

// upAgent starts the agent of this machine.
func upAgent(c *cobra.Command, o up.Options, args []string) error {
	for _, other := range []string{"servers", "agents", "ephemeral", "from-etcd", "from-pki", "apply"} {
		if c.Flags().Changed(other) {
			return errUsage{fmt.Errorf("--%s is for the machine of a server, and this one is that of an agent", other)}
		}
	}
	if _, err := saidOf(c, up.RoleAgent, args); err != nil {
		return err
	}
	o.Args, o.Said = args, args
	if _, err := up.Up(c.Context(), o); err != nil {
		return err
	}
	self, _, dirs := typed(c)
	fmt.Fprintf(o.Out, "\nTry next:\n  %s status%s\n  %[1]s down%[2]s\n  kubectl get nodes -o wide   # where you have access to the cluster\n", self, dirs)
	return nil
}

// takeInvitation has a server or agent that is told nothing else join what kemudi up has left for it, and forget that when it is ready.
func takeInvitation(m *cluster.Machine, role string, servers *[]string, token *join.Token) error {
	i, err := up.Invited(m.DataDir, role)
	if err != nil || i == nil || len(*servers) > 0 {
		return err
	}
	if *token, err = join.ParseToken(i.Token); err != nil {
		return fmt.Errorf("join as kemudi up was told: %w", err)
	}
	*servers = i.Servers
	step := m.Step
	m.Step = func(name string, ready bool) {
		if ready {
			if err := up.DropInvitation(m.DataDir); err != nil {
				m.Logger.Warn("what this machine was to join is not forgotten", "err", err)
			}
		}
		step(name, ready)
	}
	return nil
}
