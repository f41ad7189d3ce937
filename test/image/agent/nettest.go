package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// peerState is what /read shows.
type peerState struct {
	Hostname             string
	Sent                 map[string]int
	Received             map[string]int
	Errors               []string
	Log                  []string
	StillContactingPeers bool

	mu    sync.Mutex
	peers int
}

// nettest finds the other pods of its Service and checks that each can reach
// each.
func nettest(args []string) int {
	s := &peerState{Hostname: hostname(), Sent: map[string]int{}, Received: map[string]int{}, StillContactingPeers: true}
	var port, delay int
	var service, namespace string
	flags("nettest", args, func(f *pflag.FlagSet) {
		f.IntVar(&port, "port", 8080, "port number to serve at")
		f.IntVar(&s.peers, "peers", 8, "number of peers to find for the test to pass")
		f.StringVar(&service, "service", "nettest", "Service whose pods are the peers")
		f.StringVar(&namespace, "namespace", "default", "namespace of this pod")
		f.IntVar(&delay, "delay-shutdown", 0, "seconds to wait after SIGTERM")
	})
	if delay > 0 {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		go func() {
			<-c
			log.Printf("Sleeping %d seconds before exit ...", delay)
			time.Sleep(time.Duration(delay) * time.Second)
			os.Exit(0)
		}()
	}
	go s.contactPeers("/api/v1/namespaces/" + namespace + "/endpoints/" + service)
	mux := http.NewServeMux()
	mux.HandleFunc("/quit", func(http.ResponseWriter, *http.Request) { os.Exit(0) })
	mux.HandleFunc("/read", s.read)
	mux.HandleFunc("/write", s.write)
	mux.HandleFunc("/status", s.status)
	fail("%v", http.ListenAndServe(fmt.Sprintf(":%d", port), mux))
	return 1
}

func (s *peerState) read(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, _ := json.MarshalIndent(s, "", "\t")
	w.Write(data)
}

func (s *peerState) status(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.Sent) >= s.peers && len(s.Received) >= s.peers:
		io.WriteString(w, "pass")
	case s.StillContactingPeers:
		io.WriteString(w, "running")
	default:
		io.WriteString(w, "fail")
	}
}

// contact is the body of a call to /write.
type contact struct{ Source, Dest string }

func (s *peerState) write(w http.ResponseWriter, r *http.Request) {
	var c contact
	err := json.NewDecoder(r.Body).Decode(&c)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.Errors = append(s.Errors, err.Error())
	case c.Source == "":
		s.Errors = append(s.Errors, s.Hostname+": Got request with no source")
	default:
		s.Received[c.Source]++
	}
	json.NewEncoder(w).Encode(struct{ Hostname string }{s.Hostname})
}

func (s *peerState) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Log = append(s.Log, fmt.Sprintf(format, args...)); len(s.Log) > 500 {
		s.Log = s.Log[1:]
	}
}

// contactPeers waits up to five minutes for all peers and then calls each of
// them 15 times, some seconds apart.
func (s *peerState) contactPeers(endpoints string) {
	const pace = 5 * time.Second
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.StillContactingPeers = false
	}()
	client, base, token := inCluster()
	find := func() []string {
		found, err := peerURLs(client, base+endpoints, token)
		if err != nil {
			s.logf("Unable to read the endpoints: %v", err)
		}
		return found
	}
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(pace) {
		found := find()
		if len(found) >= s.peers {
			break
		}
		s.logf("%s has %v endpoints, which is less than %v as expected", endpoints, found, s.peers)
	}
	for range 15 {
		for _, peer := range find() {
			s.logf("Attempting to contact %s", peer)
			s.contact(peer)
		}
		time.Sleep(pace)
	}
}

func (s *peerState) contact(peer string) {
	body, _ := json.Marshal(contact{Source: s.Hostname, Dest: peer})
	c := http.Client{Timeout: dialTimeout}
	res, err := c.Post(peer+"/write", "application/json", bytes.NewReader(body))
	if err != nil {
		s.logf("Warning: unable to contact the endpoint %q: %v", peer, err)
		return
	}
	defer res.Body.Close()
	var answer struct{ Hostname string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		s.logf("Warning: unable to read response from %q: %v", peer, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Sent[answer.Hostname]++
}

// inCluster returns what a pod needs to call the API server.
func inCluster() (client *http.Client, base, token string) {
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	ca, err := os.ReadFile(dir + "ca.crt")
	if err != nil {
		fail("Unable to create config; error: %v", err)
	}
	data, err := os.ReadFile(dir + "token")
	if err != nil {
		fail("Unable to create config; error: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	return client, "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")), string(data)
}

// peerURLs reads an Endpoints object.
func peerURLs(client *http.Client, url, token string) (urls []string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, res.Status)
	}
	var e struct {
		Subsets []struct {
			Addresses []struct{ IP string }
			Ports     []struct{ Port int }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil {
		return nil, err
	}
	for _, ss := range e.Subsets {
		for _, a := range ss.Addresses {
			for _, p := range ss.Ports {
				urls = append(urls, "http://"+net.JoinHostPort(a.IP, strconv.Itoa(p.Port)))
			}
		}
	}
	return urls, nil
}
