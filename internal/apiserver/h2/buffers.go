package h2

import (
	"bufio"
	"sync"
	_ "unsafe" // for go:linkname
)

// The HTTP/2 server starts a goroutine for each frame that does not fit into its
// buffer, of 4 KiB, so for every one of a list and for the body of most answers,
// and offers no setting for it. This is its pool of buffers.
//
//go:linkname serverBuffers golang.org/x/net/http2.bufWriterPool
var serverBuffers sync.Pool

// serverBuffer has room for a few full frames.
const serverBuffer = 64 << 10

// widen gives the HTTP/2 servers of this process larger buffers. A connection has
// one only while it writes.
var widen = sync.OnceFunc(func() {
	serverBuffers.New = func() any { return bufio.NewWriterSize(nil, serverBuffer) }
})
