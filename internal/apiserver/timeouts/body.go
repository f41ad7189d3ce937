package timeouts

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Why a body was not read.
var (
	ErrTooLarge = errors.New("the body is too large")
	ErrNoMemory = errors.New("there is no memory for the body")
	ErrTime     = errors.New("the body did not come in time")
)

// Body says what may be spent on a request's body.
type Body struct {
	Most int64 // bytes
	// Pay pays for so many bytes of memory more, and reports whether there are as many.
	Pay func(n int64) bool
}

const (
	// free is how much room a body has that is not paid for: connections cost more.
	free = 4 << 10
	// growth is how much larger the room gets when it is full, whatever was announced.
	growth = 4
)

// Read reads the whole body of a request until the request's context ends.
// Memory is taken as bytes come: what is announced costs nothing.
func (b Body) Read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > b.Most {
		return nil, ErrTooLarge
	}
	late := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(late)
		_ = http.NewResponseController(w).SetReadDeadline(past) // who cannot does not wait either
	})
	body, err := b.read(r)
	if !stop() {
		<-late // w must not be touched when the request is done
	}
	if err != nil && errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		return nil, ErrTime
	}
	return body, err
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

func (b Body) read(r *http.Request) ([]byte, error) {
	size := r.ContentLength // -1: it is not known
	most := b.Most + 1
	if size >= 0 {
		most = size
	}
	buf := make([]byte, 0, min(free, most))
	for {
		if len(buf) == cap(buf) {
			room := min(growth*int64(cap(buf)), most)
			if !b.Pay(room - int64(cap(buf))) {
				return nil, ErrNoMemory
			}
			buf = append(make([]byte, 0, room), buf...)
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > b.Most:
			return nil, ErrTooLarge
		case int64(len(buf)) == size, err == io.EOF && size < 0:
			return buf, nil
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
}

// Hurry gives a client so much time to send what is left of a body that is not
// wanted. HTTP/1 reads it before the answer is sent, and HTTP/2 never.
func Hurry(w http.ResponseWriter, left time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(left)) // who cannot does not wait either
}
