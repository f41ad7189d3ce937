package cluster

import (
	"context"
	"errors"
	"net/netip"

	"github.com/kemudi/kemudi/internal/auth/pki"
)

// Alone says what an API server that is a process of its own has from others, each field by
// its flag. Its store is an etcd of others, too.
type Alone struct {
	Keys            pki.Given
	BootstrapTokens bool // --enable-bootstrap-token-auth
}

// APIServerOptions configure an API server that is a process of its own.
type APIServerOptions struct {
	Options
	Alone Alone
}

// APIServerDefaults are the options of an API server alone that is given none.
func APIServerDefaults() APIServerOptions {
	o := APIServerOptions{Options: Defaults(), Alone: Alone{}}
	o.NoNode = true
	o.Kubelets.Unverified = true // unless their authority is named, as upstream does
	// It gives pods no addresses; these are nobody's.
	o.Network.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	return o
}

// RunAPIServer runs the API server alone until ctx ends or a part of it fails.
func RunAPIServer(ctx context.Context, o APIServerOptions) error {
	if err := o.Alone.check(&o.Options); err != nil {
		return err
	}
	asked := o.addresses()
	o.alone = &o.Alone
	whole, err := o.withDefaults()
	if err != nil {
		return err
	}
	if err := settleProcess(o.API.MemoryLimit); err != nil {
		return err
	}
	sg := newStages(ctx)
	if err := newServer(whole, asked).start(sg); err != nil {
		return sg.fail(err)
	}
	return sg.wait()
}

// check says what is wrong with the options.
func (a *Alone) check(o *Options) error {
	if len(o.Etcd.Servers) == 0 {
		return errors.New("--etcd-servers: want the addresses of the etcd that keeps the cluster's state: https://127.0.0.1:2379,...")
	}
	if o.Identity.SigningKey == "" && o.Identity.Endpoint == "" {
		return errors.New("--service-account-signing-key-file: want the key that tokens of service accounts are signed by, or --service-account-signing-endpoint")
	}
	return nil
}

// ownKeys has the key that signs tokens, if this server has one.
func (s *server) ownKeys() *pki.PKI {
	if s.o.alone != nil {
		return nil
	}
	return s.pki
}
