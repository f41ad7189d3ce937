package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// tcpReset reads one byte of each connection and closes it while more is on its
// way, which the client sees as a reset.
func tcpReset(args []string) int {
	var port int
	flags("tcp-reset", args, func(f *pflag.FlagSet) { f.IntVar(&port, "port", 8080, "port to listen on") })
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		fail("%v", err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			fail("%v", err)
		}
		go resetOne(c)
	}
}

func resetOne(c net.Conn) {
	if _, err := c.Read(make([]byte, 1)); err != nil {
		log.Printf("read: %v", err)
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// portForwardTester takes one connection, checks what comes over it and sends
// chunks, as the environment says: BIND_ADDRESS, BIND_PORT,
// EXPECTED_CLIENT_DATA, CHUNKS, CHUNK_SIZE, CHUNK_INTERVAL (milliseconds).
func portForwardTester([]string) int {
	l, err := net.Listen("tcp", net.JoinHostPort(env("BIND_ADDRESS", "localhost"), os.Getenv("BIND_PORT")))
	if err != nil {
		fail("Error listening: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		fail("Error accepting: %v", err)
	}
	defer c.Close()
	fmt.Println("Accepted client connection")
	return forwardOne(c)
}

func forwardOne(c net.Conn) int {
	number := func(name string) int {
		n, err := strconv.Atoi(env(name, "0"))
		if err != nil {
			fail("%s: %v", name, err)
		}
		return n
	}
	if want := os.Getenv("EXPECTED_CLIENT_DATA"); want != "" {
		got := make([]byte, len(want))
		n, err := io.ReadFull(c, got)
		if err != nil && n < len(want) {
			fmt.Printf("Expected to read %d bytes from client, but got %d instead. err=%v\n", len(want), n, err)
			return 4
		}
		if !bytes.Equal(got, []byte(want)) {
			fmt.Printf("Expect to read %q, but got %q. err=%v\n", want, got, err)
			return 5
		}
		fmt.Println("Received expected client data")
	}
	chunk := strings.Repeat("x", number("CHUNK_SIZE"))
	for range number("CHUNKS") {
		if _, err := io.WriteString(c, chunk); err != nil {
			fmt.Printf("Error writing: %v\n", err)
			return 6
		}
		time.Sleep(time.Duration(number("CHUNK_INTERVAL")) * time.Millisecond)
	}
	fmt.Println("Done")
	return 0
}
