package carry

import (
	"errors"
	"io"
)

// Way copies until there is no more, and says so to the other end; where that cannot be said apart, or the copy
// fails, to is closed. It returns how many bytes were copied.
func Way(to io.WriteCloser, from io.Reader) (n int64, err error) {
	n, err = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		return n, half.CloseWrite()
	}
	return n, errors.Join(err, to.Close())
}
