package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// netexecServer is an HTTP and a UDP server that do what they are told.
type netexecServer struct {
	http     *http.Server
	udpReady atomic.Bool
}

func netexec(args []string) int {
	var httpPort, udpPort, sctpPort int
	var cert, key, override, udpAddresses string
	flags("netexec", args, func(f *pflag.FlagSet) {
		f.IntVar(&httpPort, "http-port", 8080, "HTTP port")
		f.IntVar(&udpPort, "udp-port", 8081, "UDP port, -1 for none")
		f.IntVar(&sctpPort, "sctp-port", -1, "SCTP port; not supported")
		f.StringVar(&cert, "tls-cert-file", "", "certificate for HTTPS")
		f.StringVar(&key, "tls-private-key-file", "", "private key matching --tls-cert-file")
		f.StringVar(&override, "http-override", "", "answer every request as if it were a GET of this path")
		f.StringVar(&udpAddresses, "udp-listen-addresses", "", "comma separated addresses the UDP server listens on")
	})
	if sctpPort != -1 {
		fail("SCTP is not supported")
	}
	s := &netexecServer{}
	handler := s.handler()
	if override != "" {
		handler = overridden(handler, override)
	}
	s.http = &http.Server{Addr: fmt.Sprintf(":%d", httpPort), Handler: handler}
	if udpPort != -1 {
		for address := range strings.SplitSeq(udpAddresses, ",") {
			c, err := net.ListenPacket("udp", net.JoinHostPort(address, strconv.Itoa(udpPort)))
			if err != nil {
				fail("%v", err)
			}
			log.Printf("Started UDP server on %s", c.LocalAddr())
			go serveUDP(c, udpAnswer)
		}
		s.udpReady.Store(true)
	}
	log.Printf("Started HTTP server on port %d", httpPort)
	var err error
	if cert != "" {
		err = s.http.ListenAndServeTLS(cert, key)
	} else {
		err = s.http.ListenAndServe()
	}
	if err == http.ErrServerClosed {
		select {} // exit ends the program
	}
	fail("%v", err)
	return 1
}

func overridden(h http.Handler, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, path, nil)
		if err != nil {
			http.Error(w, fmt.Sprintf("override request failed: %v", err), http.StatusInternalServerError)
			return
		}
		req.RemoteAddr = r.RemoteAddr
		h.ServeHTTP(w, req)
	})
}

func udpAnswer(request string, from net.Addr) string {
	request = strings.TrimSpace(request)
	if text, ok := strings.CutPrefix(request, "echo "); ok {
		return text
	}
	switch strings.ToLower(request) {
	case "hostname":
		return hostname()
	case "clientip":
		return from.String()
	}
	log.Printf("Unknown UDP command received: %q", request)
	return ""
}

func (s *netexecServer) handler() http.Handler {
	mux := http.NewServeMux()
	name := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, hostname()) }
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "NOW: %v", time.Now()) })
	mux.HandleFunc("/clientip", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RemoteAddr) })
	mux.HandleFunc("/serverport", serverPort)
	mux.HandleFunc("/hostname", name)
	mux.HandleFunc("/hostName", name)
	mux.HandleFunc("/header", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get(r.FormValue("key")))
	})
	mux.HandleFunc("/dial", dial)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/exit", s.exit)
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/redirect", redirect)
	mux.HandleFunc("/shell", shell)
	mux.HandleFunc("/shutdown", func(http.ResponseWriter, *http.Request) { os.Exit(0) })
	mux.HandleFunc("/upload", upload)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s", r.Method, r.URL.RequestURI())
		mux.ServeHTTP(w, r)
	})
}

func serverPort(w http.ResponseWriter, r *http.Request) {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		fmt.Fprint(w, addr.Port)
	}
}

// statusParam reads the parameter code, which may be empty.
func statusParam(w http.ResponseWriter, r *http.Request, otherwise int) (code int, ok bool) {
	text := r.FormValue("code")
	if text == "" {
		return otherwise, true
	}
	code, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintf(w, "argument 'code' must be an integer or empty, got %q\n", text)
		return 0, false
	}
	return code, true
}

func echo(w http.ResponseWriter, r *http.Request) {
	if code, ok := statusParam(w, r, http.StatusOK); ok {
		w.WriteHeader(code)
		io.WriteString(w, r.FormValue("msg"))
	}
}

func redirect(w http.ResponseWriter, r *http.Request) {
	if code, ok := statusParam(w, r, http.StatusFound); ok {
		http.Redirect(w, r, r.FormValue("location"), code)
	}
}

func (s *netexecServer) healthz(w http.ResponseWriter, _ *http.Request) {
	if !s.udpReady.Load() {
		w.WriteHeader(http.StatusPreconditionFailed)
	}
}

func (s *netexecServer) exit(w http.ResponseWriter, r *http.Request) {
	code, ok := statusParam(w, r, 0)
	if !ok {
		return
	}
	var d [2]time.Duration
	for i, param := range []string{"timeout", "wait"} {
		text := r.FormValue(param)
		if text == "" {
			continue
		}
		var err error
		if d[i], err = time.ParseDuration(text); err != nil {
			fmt.Fprintf(w, "argument '%s' must be a valid golang duration or empty, got %q\n", param, text)
			return
		}
	}
	timeout, wait := d[0], d[1]
	log.Printf("Will begin shutdown in %s, allowing %s for connections to close, then will exit with %d", wait, timeout, code)
	time.Sleep(wait)
	if timeout == 0 {
		os.Exit(code)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		log.Printf("Graceful shutdown completed with: %v", s.http.Shutdown(ctx))
		os.Exit(code)
	}()
}

func shell(w http.ResponseWriter, r *http.Request) {
	line := r.FormValue("shellCommand")
	if line == "" {
		line = r.FormValue("cmd")
	}
	out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput()
	answer := map[string]string{}
	if len(out) > 0 {
		answer["output"] = string(out)
	}
	if err != nil {
		answer["error"] = err.Error()
	}
	writeJSON(w, answer, err == nil)
}

func upload(w http.ResponseWriter, r *http.Request) {
	name, err := storeUpload(r)
	if err != nil {
		writeJSON(w, map[string]string{"error": err.Error()}, false)
		return
	}
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]string{"output": name})
}

func storeUpload(r *http.Request) (string, error) {
	in, _, err := r.FormFile("file")
	if err != nil {
		return "", fmt.Errorf("Unable to upload file: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll("/uploads", 0o755); err != nil {
		return "", err
	}
	out, err := os.CreateTemp("/uploads", "upload")
	if err != nil {
		return "", err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return "", err
	}
	return filepath.Clean(out.Name()), out.Chmod(0o755)
}

// writeJSON answers 200, or 417 where the thing asked for did not work.
func writeJSON(w http.ResponseWriter, v any, ok bool) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprintf("response could not be serialized. %v", err), http.StatusExpectationFailed)
		return
	}
	if !ok {
		w.WriteHeader(http.StatusExpectationFailed)
	}
	w.Write(data)
}
