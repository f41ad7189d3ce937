package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/auth/identity"
	"github.com/kemudi/kemudi/internal/auth/modes"
	"github.com/kemudi/kemudi/internal/backup"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/secureport"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/worker"
)

// Where a server keeps what it has, unless told otherwise.
const (
	DefaultDataDir = "/var/lib/kemudi"
	DefaultRunDir  = worker.DefaultRunDir
)

// ControllerOptions are what people tune of the controllers.
type ControllerOptions = controllers.Options

// Identity says who is believed, and what tokens of service accounts are; FrontProxy, by what a proxy is.
type (
	Identity   = identity.Options
	FrontProxy = identity.FrontProxy
)

// Port is how the API's port takes connections: what it demands of them, and with whom it is shared.
type Port struct {
	secureport.Handshake
	secureport.Sharing
}

// AddFlags adds upstream's flags.
func (p *Port) AddFlags(f *pflag.FlagSet) {
	p.Handshake.AddFlags(f)
	p.AddNamedFlag(f)
	p.Sharing.AddFlags(f)
}

// handshake is what connections to the API are taken with.
func (s *server) handshake() (*tls.Config, error) {
	config, err := s.o.Port.Config(s.pki.ServingCertificate)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = s.hints
	return config, nil
}

// listen takes the API's port.
func (s *server) listen(ctx context.Context) (net.Listener, *tls.Config, error) {
	config, err := s.handshake()
	if err != nil {
		return nil, nil, err
	}
	l, err := s.o.Port.Listen(ctx, netip.AddrPortFrom(s.o.BindAddress, s.o.SecurePort))
	if err != nil {
		return nil, nil, fmt.Errorf("serve the API: %w; is another server running, or is --secure-port taken?", err)
	}
	return l, config, nil
}

// Options configure a server. The zero value works; each field is the flag of
// `kemudi server` that is named, whose help says what it is.
type Options struct {
	Machine

	BindAddress      netip.Addr // --bind-address
	SecurePort       uint16     // --secure-port
	AdvertiseAddress netip.Addr // --advertise-address
	TLSSANs          []string   // --tls-san
	Port             Port       // --tls-min-version, --permit-port-sharing and others

	VirtualIPs []netip.Addr // --virtual-ip: addresses that one of the servers holds

	Network  Network
	API      API
	Identity Identity
	Etcd     Etcd    // --etcd-servers and others
	Joining  Joining // --server and others
	Kubelets Kubelets
	SSH      SSH

	Ephemeral bool     // --ephemeral: the store is in memory
	Takeover  Takeover // --from-etcd, --from-pki
	Backup    backup.Options

	NoNode      bool // --disable-agent
	Controllers controllers.Options

	Scheduling Scheduling
	Election   leader.Settings // --leader-elect and others

	alone  *Alone      // the process is the API server and nothing else; nil: it is a whole server
	member *membership // what this server knows of its place among several; nil: it is alone

	seed func(ctx context.Context, st store.Store) error     // fills the store before it is served; nil: nobody does
	also func(ctx context.Context, t client.Transport) error // runs with the server; nil: nothing
}

// Defaults are the options of a server that is given none, as its flags show them. What is found
// out on the machine, such as the node's name, is not set.
func Defaults() Options {
	return Options{
		Machine: defaultMachine(), SecurePort: 6443,
		Network: defaultNetwork(), Kubelets: defaultKubelets(), Identity: identity.Defaults(), Backup: backup.Defaults(),
		API: API{
			EncodedCacheSize: apiserver.DefaultEncodedBytes, RequestTimeout: apiserver.DefaultRequestTimeout, EventTTL: apiserver.DefaultKept,
			MaxReads: apiserver.DefaultMaxReads, MaxWrites: apiserver.DefaultMaxWrites, Audit: audit.Defaults(), Authorization: modes.Defaults(), Coordinated: leader.Defaults(),
		},
		Controllers: controllers.Defaults(), Election: leader.Defaults(), Joining: Joining{PeerPort: DefaultPeerPort},
	}
}

// withDefaults fills in what is not set, and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if err := o.prepare(); err != nil {
		return o, err
	}
	var err error
	if o.Network, err = o.Network.withDefaults(); err != nil {
		return o, err
	}
	if err := o.Network.checkShare(o.Controllers.NodeIPAM.Bits); err != nil {
		return o, err
	}
	return o, o.findNode()
}

// prepare does so for all but addresses, which may be others' to say.
func (o *Options) prepare() error {
	if err := o.Machine.complete(); err != nil {
		return err
	}
	o.SecurePort = cmp.Or(o.SecurePort, Defaults().SecurePort)
	if !o.BindAddress.IsValid() {
		o.BindAddress = netip.IPv6Unspecified()
	}
	for _, check := range []func() error{
		o.Controllers.Check, o.Election.Check, o.API.check, o.Identity.Check, o.Etcd.check, o.checkPrefix, o.Joining.check, o.checkEphemeral, o.checkTakeover,
		o.Kubelets.complete, o.SSH.check, o.Port.Check, o.checkBackup,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := checkVirtual(o.VirtualIPs); err != nil {
		return err
	}
	_, err := o.Scheduling.config(o.Election)
	return err
}

// findNode finds out the node's addresses, and where others reach the API.
func (o *Options) findNode() error {
	first := o.Network.ServiceCIDRs[0]
	if err := o.findAddresses(first.Addr().Is4(), len(o.Network.ClusterCIDRs) == 2); err != nil {
		return err
	}
	if !o.AdvertiseAddress.IsValid() {
		o.AdvertiseAddress = o.NodeIP
	}
	if err := checkReachable("--advertise-address", o.AdvertiseAddress); err != nil {
		return err
	}
	if o.AdvertiseAddress.Is4() != first.Addr().Is4() {
		return fmt.Errorf("the API is reached at %s and as a service of %s: --advertise-address (default --node-ip) and the first --service-cluster-ip-range must be of one family", o.AdvertiseAddress, first)
	}
	return nil
}
