package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// porter serves the value of each SERVE_PORT_n variable on port n.
func porter(args []string) int {
	var asJSON bool
	flags("porter", args, func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json-response", false, "answer with JSON that holds the request's method and the value")
	})
	for _, kv := range os.Environ() {
		key, value, _ := strings.Cut(kv, "=")
		i := strings.LastIndexByte(key, '_')
		if i < 0 {
			continue
		}
		kind, addr := key[:i], "0.0.0.0:"+key[i+1:]
		switch kind {
		case "SERVE_PORT", "SERVE_TCP_PORT":
			go func() { log.Printf("%s: %v", key, http.ListenAndServe(addr, porterHandler(value, asJSON))) }()
		case "SERVE_TLS_PORT":
			cert, private := env("CERT_FILE", "/localhost.crt"), env("KEY_FILE", "/localhost.key")
			go func() {
				log.Printf("%s: %v", key, http.ListenAndServeTLS(addr, cert, private, porterHandler(value, asJSON)))
			}()
		case "SERVE_UDP_PORT":
			c, err := net.ListenPacket("udp", addr)
			if err != nil {
				fail("UDP: failed to listen on %s: %v", addr, err)
			}
			go serveUDP(c, func(string, net.Addr) string { return value })
		case "SERVE_SCTP_PORT":
			fail("%s: SCTP is not supported", key)
		}
	}
	select {}
}

func porterHandler(value string, asJSON bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !asJSON {
			io.WriteString(w, value)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(struct{ Method, Body string }{r.Method, value})
	})
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
