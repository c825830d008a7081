package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// unixPrefix begins an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// TLS is how connections are encrypted. The zero value leaves them in plain text. It names files instead of holding what is in
// them, so that it can be compared, recorded, and handed to another process.
type TLS struct {
	On         bool   `json:"on,omitempty"`
	CA         string `json:"ca,omitempty"`   // PEM file of the authorities to trust; "": those of the system
	Cert       string `json:"cert,omitempty"` // PEM files of the certificate to show and of its key; "": none
	Key        string `json:"key,omitempty"`
	SkipVerify bool   `json:"skip_verify,omitempty"` // trust whatever certificate the server shows
}

// Load reads the files. It returns nil for plain text.
func (t TLS) Load() (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	c := &tls.Config{InsecureSkipVerify: t.SkipVerify, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca %s: there is no PEM certificate in it", t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", t.Cert, t.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// split tells the network of an address from its place there.
func split(addr string) (network, place string) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return "unix", path
	}
	return "tcp", addr
}

// open connects to addr and, where secure is not nil, makes the TLS handshake.
func open(ctx context.Context, d net.Dialer, addr string, secure *tls.Config) (net.Conn, error) {
	network, place := split(addr)
	nc, err := d.DialContext(ctx, network, place)
	if err != nil {
		return nil, explain(err)
	}
	if secure == nil {
		return nc, nil
	}
	if secure.ServerName == "" && network == "tcp" {
		host, _, _ := net.SplitHostPort(place)
		secure = secure.Clone()
		secure.ServerName = host
	}
	c := tls.Client(nc, secure)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, explainTLS(err, addr)
	}
	return c, nil
}

// errPlain is a server that was to speak TLS and speaks plain text.
var errPlain = errors.New("the server speaks plain text there, not TLS: use redis:// instead of rediss://")

// explainTLS says what a failed handshake means.
func explainTLS(err error, addr string) error {
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("TLS handshake: %w (its answer begins with %q)", errPlain, record.RecordHeader[:])
	case errors.As(err, &authority):
		return fmt.Errorf("TLS handshake: %w: name the authority with --tls-ca FILE, or trust any certificate with --tls-skip-verify", err)
	case errors.As(err, &host):
		return fmt.Errorf("TLS handshake: %w: use a name that the certificate has, or --tls-skip-verify", err)
	case speaksPlain(addr):
		return fmt.Errorf("TLS handshake: %w", errPlain)
	}
	return fmt.Errorf("TLS handshake: %w", wantsCertificate(err))
}

// wantsCertificate adds what helps where a server has refused us for our certificate.
func wantsCertificate(err error) error {
	if text := err.Error(); strings.Contains(text, "certificate required") || strings.Contains(text, "bad certificate") {
		return fmt.Errorf("%w: the server wants a certificate of its clients: give --tls-cert and --tls-key", err)
	}
	return err
}

// probeTimeout bounds asking a server which of the two it speaks.
const probeTimeout = time.Second

// speaksPlain reports whether a server answers in plain text.
func speaksPlain(addr string) bool {
	answer := make([]byte, 1)
	err := probe(addr, func(nc net.Conn) error {
		if _, err := nc.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
			return err
		}
		_, err := io.ReadFull(nc, answer)
		return err
	})
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// speaksTLS reports whether a server makes TLS handshakes, or would if it liked our certificate.
func speaksTLS(addr string) bool {
	err := probe(addr, func(nc net.Conn) error {
		return tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).Handshake() // nothing is said on it
	})
	return err == nil || strings.HasPrefix(err.Error(), "remote error: tls:")
}

func probe(addr string, f func(net.Conn) error) error {
	network, place := split(addr)
	nc, err := net.DialTimeout(network, place, probeTimeout)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return err
	}
	return f(nc)
}

// HangUp closes a connection at once: what is under way is dropped, its port is free at once instead of in a minute, and of TLS no
// goodbye is sent.
func HangUp(c net.Conn) {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
