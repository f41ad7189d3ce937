package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// webServer is the example application: it says who answered whom. It can be
// replaced under load without a failed request.
type webServer struct {
	version  string
	draining atomic.Bool // after SIGTERM: still serving, no longer ready
}

func web(args []string) int {
	s := &webServer{}
	var port int
	var drain, timeout time.Duration
	flags("web", args, func(f *pflag.FlagSet) {
		f.IntVar(&port, "port", 8080, "port number")
		f.StringVar(&s.version, "version", env("VERSION", "1"), "version to answer with")
		f.DurationVar(&drain, "drain", 3*time.Second, "how long to go on serving after SIGTERM, so that proxies notice")
		f.DurationVar(&timeout, "shutdown-timeout", 20*time.Second, "how long running requests may take after that")
	})
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		fail("%v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log.Printf("web %s: serving on %s", s.version, l.Addr())
	if err := s.serve(ctx, l, drain, timeout); err != nil {
		log.Printf("web %s: %v", s.version, err)
		return 1
	}
	log.Printf("web %s: done", s.version)
	return 0
}

// serve serves until ctx ends, then goes on for drain while /readyz says no,
// then takes no more connections and lets running requests end.
func (s *webServer) serve(ctx context.Context, l net.Listener, drain, timeout time.Duration) error {
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	log.Printf("web %s: draining for %s", s.version, drain)
	select {
	case err := <-failed:
		return err
	case <-time.After(drain):
	}
	end, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := lastInLine(end, l); err != nil {
		return err
	}
	if err := srv.Shutdown(end); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// lastInLine is served after all who stand in the kernel's line. Where processors are scarce some do who came long before
// the end, and to close the door would turn them away.
func lastInLine(ctx context.Context, l net.Listener) error {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("localhost", port)+"/healthz", nil)
	if err != nil {
		return err
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (s *webServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		client, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			client = r.RemoteAddr
		}
		fmt.Fprintln(w, hostname(), client, s.version)
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.FormValue("msg")) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(d):
			fmt.Fprintln(w, "slept", d)
		case <-r.Context().Done():
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close") // come back to someone else
		}
		mux.ServeHTTP(w, r)
	})
}
