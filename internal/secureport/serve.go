package secureport

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/auth/delegated"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/task"
	kubeversion "github.com/kemudi/kemudi/internal/version"
)

// Part is who tells of itself. All fields but Further are required.
type Part struct {
	Name     string           // upstream's
	Host     string           // name of this machine, for a certificate that nobody has signed
	API      client.Transport // asks about tokens and rights, unless the options name others
	Level    kubeversion.Level
	Health   *obs.Health
	Registry *prometheus.Registry
	Config   Configuration
	Logger   *slog.Logger
	// Further is what it tells beside, by the path; nil: nothing.
	Further map[string]http.Handler
}

// Configuration is how a part is configured, as /configz shows it.
type Configuration struct {
	Name  string // upstream's of the component's configuration
	Value any    // in the form that upstream's file has
}

// ServeHTTP answers with the configuration.
func (c Configuration) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	data, err := json.Marshal(map[string]any{c.Name: c.Value})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // an error means that the client has gone
}

// Limits of the connections.
const (
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
)

// Serve begins to serve what the part tells of itself, as a task of g.
func (o Options) Serve(g *task.Group, p Part) error {
	if o.Port == 0 {
		return nil
	}
	l, err := o.listen(g.Context(), p.Name)
	if err != nil {
		return err
	}
	if err := o.serve(g, p, l); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

func (o *Options) listen(ctx context.Context, name string) (net.Listener, error) {
	where := netip.AddrPortFrom(o.Bind, o.Port)
	if !o.Bind.IsValid() {
		where = netip.AddrPortFrom(netip.IPv6Unspecified(), o.Port)
	}
	l, err := o.Listen(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w; is another %s running, or is --secure-port taken?", err, name)
	}
	return l, nil
}

// serve serves on l, which it closes.
func (o *Options) serve(g *task.Group, p Part, l net.Listener) error {
	cert, err := ServingCertificate(Serving{Name: p.Host, CertFile: o.CertFile, KeyFile: o.KeyFile})
	if err != nil {
		return err
	}
	config, err := o.Config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert() })
	if err != nil {
		return err
	}
	config.ClientAuth = tls.RequestClientCert
	handler, err := o.gate(g, p)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		TLSConfig: config, ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(g.Context()) },
	}
	g.Go("port", func(context.Context) error {
		if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve health and metrics on %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go("end port", func(ctx context.Context) error {
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

// gate is what stands before the paths of the part.
func (o *Options) gate(g *task.Group, p Part) (*gate, error) {
	tokens, err := p.asker(g, o.Authentication, "--authentication-kubeconfig")
	if err != nil {
		return nil, err
	}
	rights, err := p.asker(g, o.Authorization, "--authorization-kubeconfig")
	if err != nil {
		return nil, err
	}
	who, err := o.believed(tokens)
	if err != nil {
		return nil, err
	}
	return &gate{who: who, may: delegated.NewRights(rights), allow: o.AlwaysAllow, log: p.Logger, next: p.paths(o.Profiling)}, nil
}

// asker is the API as the user of another kubeconfig sees it, or, if none is named, the part's own.
func (p *Part) asker(g *task.Group, kubeconfig, flag string) (client.Transport, error) {
	if kubeconfig == "" {
		return p.API, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	config.UserAgent = p.Name
	options, err := https.FromConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	options.Logger = p.Logger
	t, err := https.New(options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	g.Go("connection to the servers for "+flag, t.Run)
	return t, nil
}

// paths are what a part tells of itself.
func (p *Part) paths(profiles bool) *http.ServeMux {
	mux := http.NewServeMux()
	p.Health.Install(mux)
	mux.Handle("/metrics", obs.MetricsHandler(p.Registry, p.Logger))
	mux.Handle("/metrics/slis", p.Health.SLIs(p.Logger))
	mux.Handle("/configz", p.Config)
	for path, h := range p.Further {
		mux.Handle(path, h)
	}
	paths := []string{"/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"}
	if profiles {
		obs.InstallProfiles(mux)
		mux.Handle(obs.VerbosityPath, obs.Verbosity{Log: p.Logger})
		paths = append(paths, obs.ProfilesPath)
	}
	(&obs.Pages{Component: p.Name, Began: time.Now(), Level: p.Level, Paths: func() []string { return paths }}).Install(mux)
	return mux
}
