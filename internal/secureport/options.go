package secureport

import (
	"errors"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/auth/authn"
)

// Options say where a part tells of itself, each field by its flag. Who asks is known by a
// certificate of ClientCA, by a proxy of FrontProxyCA, or by a token that the API server
// knows; the API server also says who may, and who signs certificates of clients and proxies where
// no file does.
type Options struct {
	Handshake // --tls-min-version and others
	Sharing   // --permit-port-sharing

	Bind              netip.Addr              // --bind-address; none: all
	Port              uint16                  // --secure-port; 0: nothing is served
	CertFile, KeyFile string                  // --tls-cert-file, --tls-private-key-file; none: a certificate that nobody has signed
	ClientCA          string                  // --client-ca-file
	FrontProxyCA      string                  // --requestheader-client-ca-file
	FrontProxyNames   []string                // --requestheader-allowed-names; none: any
	FrontProxyHeaders authn.FrontProxyHeaders // --requestheader-username-headers and others
	SkipLookup        bool                    // --authentication-skip-lookup: what the API server says of clients and proxies does not count
	Authentication    string                  // --authentication-kubeconfig: asks about tokens; default the part's own
	Authorization     string                  // --authorization-kubeconfig: asks about rights; likewise
	AlwaysAllow       []string                // --authorization-always-allow-paths: a * at the end stands for all that begins so
	Profiling         bool                    // --profiling
}

// Defaults are the options of a part on its port.
func Defaults(port uint16) Options {
	return Options{Bind: netip.IPv4Unspecified(), Port: port, AlwaysAllow: []string{"/healthz", "/readyz", "/livez"}, Profiling: true}
}

// Check says what is wrong with the options.
func (o *Options) Check() error {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	return o.Handshake.Check()
}

// AddFlags adds upstream's flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.Var((*address)(&o.Bind), "bind-address", "address to serve health and metrics on")
	f.Uint16Var(&o.Port, "secure-port", o.Port, "port to serve health and metrics on, over TLS; 0: they are not served")
	f.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "certificate to serve with; default one that nobody has signed")
	f.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "key of that certificate")
	o.Handshake.AddFlags(f)
	o.AddNamedFlag(f)
	o.Sharing.AddFlags(f)
	f.StringVar(&o.ClientCA, "client-ca-file", o.ClientCA, "certificates of the authority that clients are known by; default those that the API server publishes")
	f.StringVar(&o.FrontProxyCA, "requestheader-client-ca-file", o.FrontProxyCA, "certificates of the authority of proxies that are believed when they say for whom a request is; default those that the API server publishes")
	f.StringSliceVar(&o.FrontProxyNames, "requestheader-allowed-names", o.FrontProxyNames, "common names of their certificates; default any")
	f.StringSliceVar(&o.FrontProxyHeaders.User, "requestheader-username-headers", o.FrontProxyHeaders.User, "headers by which they say who; default X-Remote-User")
	f.StringSliceVar(&o.FrontProxyHeaders.UID, "requestheader-uid-headers", o.FrontProxyHeaders.UID, "headers of the UID; default X-Remote-Uid")
	f.StringSliceVar(&o.FrontProxyHeaders.Group, "requestheader-group-headers", o.FrontProxyHeaders.Group, "headers of the groups; default X-Remote-Group")
	f.StringSliceVar(&o.FrontProxyHeaders.Extra, "requestheader-extra-headers-prefix", o.FrontProxyHeaders.Extra, "how headers of further attributes begin; default X-Remote-Extra-")
	f.BoolVar(&o.SkipLookup, "authentication-skip-lookup", o.SkipLookup, "do not ask the API server who signs the certificates of clients and proxies, where no file says so")
	f.Bool("authentication-tolerate-lookup-failure", true, "for scripts: a part serves whether or not the API server says so")
	f.StringVar(&o.Authentication, "authentication-kubeconfig", o.Authentication, "kubeconfig of who asks the API server about tokens; default --kubeconfig")
	f.StringVar(&o.Authorization, "authorization-kubeconfig", o.Authorization, "kubeconfig of who asks the API server about rights; default --kubeconfig")
	f.StringSliceVar(&o.AlwaysAllow, "authorization-always-allow-paths", o.AlwaysAllow, "paths that anybody may get; a * at the end stands for all that begins so")
	f.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve profiles of the process below /debug/pprof to who may get them")
}

// address is an IP address; empty: all.
type address netip.Addr

func (a *address) Type() string { return "ip" }

func (a *address) String() string {
	if !(*netip.Addr)(a).IsValid() {
		return ""
	}
	return (*netip.Addr)(a).String()
}

func (a *address) Set(s string) error { return (*netip.Addr)(a).UnmarshalText([]byte(s)) }
