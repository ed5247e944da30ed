package registry

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientPatience ends a benchmark whose server sends less than was asked for.
const clientPatience = time.Minute

// counted tells how many bytes came over a connection.
type counted struct {
	net.Conn
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += n
	return n, err
}

// rawClient sends prepared requests over one connection, with as little work of its own as possible: what is measured
// is the server, the client is another machine in the field.
type rawClient struct {
	base *counted
	c    net.Conn // over TLS or base itself
	in   *bufio.Reader
	req  []byte
	// sealed is how many bytes the answer to req takes on the wire under TLS, 0 as long as it is not known.
	sealed int
}

func newRawClient(b *testing.B, p peer, path string) *rawClient {
	b.Helper()
	c, err := net.Dial("tcp", p.addr)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	require.NoError(b, c.SetDeadline(time.Now().Add(clientPatience)))
	r := &rawClient{base: &counted{Conn: c}}
	r.c = r.base
	if p.config != nil {
		r.c = tls.Client(r.base, p.config)
	}
	r.in = bufio.NewReaderSize(r.c, 64<<10)
	r.req = []byte("GET " + path +
		" HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dTpw\r\nAccept: application/vnd.oci.image.manifest.v1+json\r\n\r\n")
	return r
}

// settle lets TLS records reach their full size and learns how long the sealed answer is.
func (r *rawClient) settle(b *testing.B) {
	b.Helper()
	sink := make([]byte, 512<<10)
	for first := true; first || r.c != net.Conn(r.base) && r.base.n < 1<<20; first = false {
		_, err := r.get(sink)
		require.NoError(b, err)
	}
	if r.c == net.Conn(r.base) {
		return
	}
	before := r.base.n
	_, err := r.get(sink)
	require.NoError(b, err)
	r.sealed = r.base.n - before
}

// get returns the length of the body, which is thrown away. Once the client has settled, TLS answers are not
// deciphered: their bytes are counted and dropped.
func (r *rawClient) get(sink []byte) (int, error) {
	if _, err := r.c.Write(r.req); err != nil {
		return 0, err
	}
	if r.sealed > 0 {
		return r.sealed, r.dropAll(sink, r.sealed)
	}
	status, length, err := r.header()
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return 0, fmt.Errorf("status %d", status)
	}
	held := min(length, r.in.Buffered())
	if _, err := r.in.Discard(held); err != nil {
		return 0, err
	}
	if r.c != net.Conn(r.base) {
		_, err = io.CopyN(io.Discard, r.in, int64(length-held))
		return length, err
	}
	return length, r.dropAll(sink, length-held)
}

// header reads an answer's status and the length of its body.
func (r *rawClient) header() (status, length int, err error) {
	for first := true; ; first = false {
		line, err := r.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		if first {
			if status, err = strconv.Atoi(string(bytes.Fields(line)[1])); err != nil {
				return 0, 0, err
			}
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return 0, 0, err
			}
		}
		if len(line) == 2 {
			return status, length, nil
		}
	}
}

func (r *rawClient) dropAll(sink []byte, left int) error {
	for left > 0 {
		n, err := r.drop(sink[:min(left, len(sink))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// drop lets the kernel throw bytes away (tcp(7), MSG_TRUNC).
func (r *rawClient) drop(sink []byte) (n int, err error) {
	raw, err := r.base.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), sink, syscall.MSG_TRUNC)
		return err != syscall.EAGAIN
	})
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, errors.Join(readErr, err)
}

// send makes one request with a body and returns where its answer points to.
func (r *rawClient) send(b *testing.B, method, path string, body []byte, contentType string) string {
	b.Helper()
	var req bytes.Buffer
	fmt.Fprintf(&req, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dTpw\r\nContent-Length: %d\r\n", method, path,
		len(body))
	if contentType != "" {
		fmt.Fprintf(&req, "Content-Type: %s\r\n", contentType)
	}
	req.WriteString("\r\n")
	_, err := r.c.Write(req.Bytes())
	require.NoError(b, err)
	_, err = r.c.Write(body)
	require.NoError(b, err)
	resp, err := http.ReadResponse(r.in, &http.Request{Method: method})
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
	require.Less(b, resp.StatusCode, 300, "%s %s", method, path)
	return resp.Header.Get("Location")
}
