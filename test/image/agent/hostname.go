package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// serveHostname answers everything with the host's name. After SIGTERM it goes
// on answering for a minute: it is killed before that, which is the point.
func serveHostname(args []string) int {
	var tcp, udp, web, closing bool
	var port int
	flags("serve-hostname", args, func(f *pflag.FlagSet) {
		f.BoolVar(&tcp, "tcp", false, "serve raw over TCP")
		f.BoolVar(&udp, "udp", false, "serve raw over UDP")
		f.BoolVar(&web, "http", true, "serve HTTP")
		f.BoolVar(&closing, "close", false, "close the connection after each HTTP answer")
		f.IntVar(&port, "port", 9376, "port number")
	})
	if web && (tcp || udp) {
		fail("Can't serve TCP/UDP mode and HTTP mode at the same time")
	}
	name, addr := hostname(), fmt.Sprintf(":%d", port)
	if tcp {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fail("Error from net.Listen(): %s", err)
		}
		go serveTCP(l, name)
	}
	if udp {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			fail("Error from ListenUDP(): %s", err)
		}
		go serveUDP(c, func(string, net.Addr) string { return name })
	}
	if web {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fail("Error from net.Listen(): %s", err)
		}
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			log.Printf("HTTP request from %s", r.RemoteAddr)
			if closing {
				w.Header().Set("Connection", "close")
			}
			io.WriteString(w, name)
		}))
	}
	log.Printf("Serving on port %d.", port)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	log.Printf("Shutting down after receiving signal: %s.", <-c)
	log.Printf("Awaiting pod deletion.")
	time.Sleep(time.Minute)
	return 0
}

// serveTCP answers each connection with one text and closes it.
func serveTCP(l net.Listener, answer string) {
	for {
		c, err := l.Accept()
		if err != nil {
			fail("Error from Accept(): %s", err)
		}
		log.Printf("TCP request from %s", c.RemoteAddr())
		io.WriteString(c, answer)
		c.Close()
	}
}

// serveUDP answers each packet for which reply has an answer.
func serveUDP(c net.PacketConn, reply func(request string, from net.Addr) string) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			fail("Error from ReadFrom(): %s", err)
		}
		log.Printf("UDP request from %s", from)
		if answer := reply(string(buf[:n]), from); answer != "" {
			c.WriteTo([]byte(answer), from)
		}
	}
}

// testWebserver serves the image's files.
func testWebserver(args []string) int {
	var port int
	flags("test-webserver", args, func(f *pflag.FlagSet) {
		f.IntVar(&port, "port", 80, "port number")
	})
	fail("%v", http.ListenAndServe(fmt.Sprintf(":%d", port), http.FileServer(http.Dir("/"))))
	return 1
}
