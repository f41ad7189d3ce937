package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/reach"
	"github.com/kemudi/kemudi/internal/reach/ssh"
)

// SSH says how nodes are reached over networks that nobody trusts, each field by its
// flag. The zero value: not by SSH.
type SSH struct {
	User    string // --ssh-user
	KeyFile string // --ssh-keyfile
}

func (o *SSH) check() error {
	if (o.User == "") != (o.KeyFile == "") {
		return errors.New("--ssh-user and --ssh-keyfile go together")
	}
	return nil
}

// sshPort is where nodes serve SSH.
const sshPort = "22"

// openSSH makes SSH the way to nodes, if it is to be.
func (s *server) openSSH() (err error) {
	if s.o.SSH.User == "" {
		return nil
	}
	s.ssh, err = ssh.New(ssh.Options{
		User: s.o.SSH.User, KeyFile: s.o.SSH.KeyFile, KnownHosts: filepath.Join(s.o.DataDir, "ssh-known-hosts"), Logger: s.o.Logger.With("part", "ssh"),
	})
	return err
}

// bySSH connects to a target by the SSH server of its node.
func (d nodes) bySSH(ctx context.Context, to reach.Target) (net.Conn, error) {
	node, ok := d.node(to.Node)
	if !ok {
		return nil, fmt.Errorf("node %s is not registered", to.Node)
	}
	agent := d.s.o.Kubelets.address(node)
	if to.Kind == reach.Agent {
		to.Address = agent
	}
	host, _, err := net.SplitHostPort(agent)
	if err != nil {
		return nil, fmt.Errorf("node %s does not say where its agent is served", node.Name)
	}
	return d.s.ssh.Dial(ctx, ssh.Target{Node: node.Name, Server: net.JoinHostPort(host, sshPort), Address: to.Address})
}
