package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// guestbook is one of the three parts of an application: a primary keeps entries and
// passes them to the replicas that have registered with it, and a frontend writes to
// the one and reads from the others, by the names of their services.
type guestbook struct {
	primary, replica string // addresses
	client           http.Client

	mu       sync.Mutex
	entries  map[string]string
	replicas []string
}

func guestbookServer(args []string) int {
	var port, backend int
	var of string
	var patience time.Duration
	flags("guestbook", args, func(f *pflag.FlagSet) {
		f.IntVar(&port, "http-port", 80, "port number")
		f.IntVar(&backend, "backend-port", 6379, "port of the primary and of the replicas")
		f.StringVar(&of, "replicaof", "", "the primary's host, for a replica")
		f.DurationVar(&patience, "node-timeout", 30*time.Second, "how long a replica tries to register")
	})
	at := func(host string) string { return net.JoinHostPort(host, fmt.Sprint(backend)) }
	g := &guestbook{primary: at("agnhost-primary"), replica: at("agnhost-replica"), client: http.Client{Timeout: dialTimeout}, entries: map[string]string{}}
	if of != "" {
		if err := g.register(at(of), port, patience); err != nil {
			fail("%v", err)
		}
	}
	if err := http.ListenAndServe(fmt.Sprintf(":%d", port), g.handler()); err != nil {
		fail("%v", err)
	}
	return 0
}

func (g *guestbook) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		writeJSON(w, map[string]string{"data": g.entries[r.URL.Query().Get("key")]}, true)
	})
	mux.HandleFunc("/set", g.set)
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.replicas = append(g.replicas, r.URL.Query().Get("host"))
		writeJSON(w, g.entries, true)
	})
	mux.HandleFunc("/guestbook", g.front)
	return mux
}

// set keeps an entry, and has every replica keep it before it answers.
func (g *guestbook) set(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries[q.Get("key")] = q.Get("value")
	for _, replica := range g.replicas {
		if _, err := g.ask(replica, "set", q); err != nil {
			http.Error(w, err.Error(), http.StatusExpectationFailed)
			return
		}
	}
	writeJSON(w, map[string]string{"data": "Updated"}, true)
}

// front asks the part that knows.
func (g *guestbook) front(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to := g.replica
	switch q.Get("cmd") {
	case "set":
		to = g.primary
	case "get":
	default:
		http.Error(w, "cmd must be get or set", http.StatusBadRequest)
		return
	}
	text, err := g.ask(to, q.Get("cmd"), q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusExpectationFailed)
		return
	}
	io.WriteString(w, text)
}

func (g *guestbook) ask(addr, path string, q url.Values) (string, error) {
	res, err := g.client.Get("http://" + addr + "/" + path + "?" + q.Encode())
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s: %s", path, addr, res.Status, body)
	}
	return string(body), err
}

// register tells the primary where this replica is, again until it hears.
func (g *guestbook) register(primary string, port int, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.DialTimeout("tcp", primary, dialTimeout)
		if err == nil {
			host, _, splitErr := net.SplitHostPort(conn.LocalAddr().String())
			conn.Close()
			_, err = g.ask(primary, "register", url.Values{"host": {net.JoinHostPort(host, fmt.Sprint(port))}})
			if err = errors.Join(splitErr, err); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("register with %s: %w", primary, err)
		}
		log.Printf("guestbook: not registered yet: %v", err)
		time.Sleep(time.Second)
	}
}
