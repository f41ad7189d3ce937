package parts

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"k8s.io/client-go/util/keyutil"

	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/loadbalancer"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/task"
)

// ControllerManagerName is upstream's name of what runs the controllers, and that of its lease.
const ControllerManagerName = "kube-controller-manager"

// ControllerManager are the options of the controllers alone, each field by its flag.
type ControllerManager struct {
	API    API
	Secure secureport.Options
	Keys   ControllerKeys

	// Accounts has each controller write as a service account of its own
	// (--use-service-account-credentials); otherwise all write as the kubeconfig's user.
	Accounts     bool
	NodeCIDRs    bool           // --allocate-node-cidrs
	NoGarbage    bool           // --enable-garbage-collector=false
	ClusterCIDRs []netip.Prefix // --cluster-cidr
	Controllers  controllers.Options
	Election     leader.Settings // --leader-elect and others
	Logger       *slog.Logger
}

// ControllerKeys are files, each by its flag.
type ControllerKeys struct {
	RootCA   string                        // --root-ca-file: what pods are to trust; default what the kubeconfig does
	Signing  AuthorityFiles                // --cluster-signing-cert-file and -key-file: sign requests for certificates; none: nobody does
	Signers  map[OwnSigner]*AuthorityFiles // --cluster-signing-kubelet-client-cert-file and so on, in the place of Signing
	Accounts string                        // --service-account-private-key-file: signs the tokens that are kept in secrets; none: nobody does
}

// DefaultControllerManager are the options of who is given none.
func DefaultControllerManager() ControllerManager {
	o := ControllerManager{Secure: secureport.Defaults(10257), Controllers: controllers.Defaults(), Election: leader.Defaults(), Logger: slog.Default()}
	o.Election.Names = []string{ControllerManagerName}
	o.Keys.Signers = map[OwnSigner]*AuthorityFiles{}
	for _, s := range OwnSigners() {
		o.Keys.Signers[s] = &AuthorityFiles{}
	}
	o.Controllers.LoadBalancer = loadbalancer.Options{} // whose service proxies it would lead to is not known
	return o
}

// check says what is wrong with the options.
func (o *ControllerManager) check() error {
	if err := o.Keys.checkSigning(); err != nil {
		return err
	}
	if o.NodeCIDRs && len(o.ClusterCIDRs) == 0 {
		return errors.New("--allocate-node-cidrs: nodes get their shares of --cluster-cidr, which is missing")
	}
	if len(o.ClusterCIDRs) > 2 || len(o.ClusterCIDRs) == 2 && o.ClusterCIDRs[0].Addr().Is4() == o.ClusterCIDRs[1].Addr().Is4() {
		return errors.New("--cluster-cidr: want one range, or one of each family")
	}
	if err := o.Controllers.Check(); err != nil {
		return err
	}
	if err := o.Secure.Check(); err != nil {
		return err
	}
	return checkOffice(o.Election)
}

// Run runs the controllers until ctx ends, whenever this process leads.
func (o ControllerManager) Run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	p, err := newProcess(ControllerManagerName, o.API, o.Logger)
	if err != nil {
		return err
	}
	if err := o.open(p); err != nil {
		return err
	}
	as := func(name string) client.Transport { return p.api.As(controller.Agent(name)) }
	var own *accounts
	if o.Accounts {
		if own, err = p.newAccounts(); err != nil {
			return err
		}
		as = own.as
	}
	metrics := controller.NewMetrics(p.registry)
	var all []*controller.Controller // once this process has led
	return p.run(ctx, func(g *task.Group) error {
		if own != nil {
			g.Go("connection of the controllers", own.bare.Run)
		}
		p.hold(g, office{settings: o.Election, reporter: ControllerManagerName, work: func(ctx context.Context) error {
			if all == nil {
				if all, err = o.all(ctx, p); err != nil {
					return err
				}
			}
			return controller.RunAll(ctx, o.Controllers.Running(all), controller.Env{As: as, Recorder: p.events.For, Logger: p.log, Metrics: metrics, Manager: ControllerManagerName})
		}})
		return o.Secure.Serve(g, p.part(o.configuration()))
	})
}

// open reads what the controllers sign with, and opens their cloud.
func (o *ControllerManager) open(p *process) (err error) {
	c := &o.Controllers
	if o.NoGarbage {
		if len(c.Enabled) == 0 {
			c.Enabled = []string{"*"}
		}
		c.Enabled = append([]string{"-garbage-collector-controller"}, c.Enabled...)
	}
	c.Registry = p.registry
	c.CABundle = string(p.config.CAData)
	file := p.config.CAFile
	if o.Keys.RootCA != "" {
		file = o.Keys.RootCA
	}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--root-ca-file: %w", err)
		}
		c.CABundle = string(data)
	}
	if err := o.Keys.readSigning(c); err != nil {
		return err
	}
	if o.Keys.Accounts != "" {
		key, err := keyutil.PrivateKeyFromFile(o.Keys.Accounts)
		if err != nil {
			return fmt.Errorf("--service-account-private-key-file: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return fmt.Errorf("--service-account-private-key-file %s: a key of type %T cannot sign", o.Keys.Accounts, key)
		}
		if c.Tokens, err = authn.NewIssuer(authn.IssuerOptions{Key: signer}); err != nil {
			return err
		}
	}
	if c.Cloud.Provider, err = cloud.Open(c.Cloud.Name, c.Cloud.ConfigFile); err != nil {
		return err
	}
	c.Cloud.ClusterCIDRs = o.ClusterCIDRs
	if o.NodeCIDRs {
		c.PodCIDRs = o.ClusterCIDRs
	}
	return nil
}

// all are the controllers for what the API serves now.
func (o *ControllerManager) all(ctx context.Context, p *process) ([]*controller.Controller, error) {
	defs, err := p.served(ctx)
	if err != nil {
		return nil, err
	}
	c := o.Controllers
	c.Kinds = controller.Fixed(slices.DeleteFunc(defs, func(d *resource.Def) bool { return !d.Stored() }))
	c.PodGroups = slices.Contains(defs, scheduling.PodGroups.Def)
	if c.Cloud.Provider != nil {
		for _, lack := range c.Cloud.Lacks() {
			p.log.Warn("a loop of the cloud does not run", "controller", lack.Loop, "why", lack.Why)
		}
	}
	return controllers.All(c), nil
}
