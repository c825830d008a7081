package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate makes a certificate for localhost that signs itself, and the files that hold it and its key.
func certificate(t *testing.T) (cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// serveTLS answers +OK to whatever comes on a TLS connection, and returns the address by the name in the certificate.
func serveTLS(t *testing.T, c *tls.Config) string {
	t.Helper()
	addr := serve(t, func(nc net.Conn) {
		encrypted := tls.Server(nc, c)
		buf := make([]byte, 1<<10)
		for {
			if _, err := encrypted.Read(buf); err != nil {
				return
			}
			if _, err := io.WriteString(encrypted, "+OK\r\n"); err != nil {
				return
			}
		}
	})
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort("localhost", port)
}

func TestTLS(t *testing.T) {
	cert, key, pair := certificate(t)
	open := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}})
	pool := x509.NewCertPool()
	leaf, _ := x509.ParseCertificate(pair.Certificate[0])
	pool.AddCert(leaf)
	closed := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	_, port, _ := net.SplitHostPort(open)
	plain := serve(t, func(c net.Conn) {
		c.Read(make([]byte, 1<<10))
		io.WriteString(c, "-ERR Protocol error\r\n")
	})
	silent := serve(t, func(c net.Conn) { // as a server that waits for the end of a line
		buf := make([]byte, 1<<10)
		n, _ := c.Read(buf)
		if buf[0] == '*' {
			io.WriteString(c, "+PONG\r\n")
		}
		for n > 0 {
			n, _ = c.Read(buf)
		}
	})
	on := func(f func(*TLS)) TLS {
		c := TLS{On: true}
		f(&c)
		return c
	}
	for _, tt := range []struct {
		name, addr string
		TLS
		want string // in the error; "": none
	}{
		{"trusted authority", open, on(func(c *TLS) { c.CA = cert }), ""},
		{"anybody trusted", "127.0.0.1:" + port, on(func(c *TLS) { c.SkipVerify = true }), ""},
		{"unknown authority", open, on(func(*TLS) {}), "--tls-ca"},
		{"another name", "127.0.0.1:" + port, on(func(c *TLS) { c.CA = cert }), "--tls-skip-verify"},
		{"with a certificate", closed, on(func(c *TLS) { c.CA, c.Cert, c.Key = cert, cert, key }), ""},
		{"without a certificate", closed, on(func(c *TLS) { c.CA = cert }), "give --tls-cert"},
		{"no such file", open, on(func(c *TLS) { c.CA = cert + "x" }), "--tls-ca: open"},
		{"no certificate in the file", open, on(func(c *TLS) { c.CA = key }), "no PEM certificate"},
		{"plain text to TLS", open, TLS{}, "speaks TLS there, not plain text: use rediss://"},
		{"plain text to TLS with certificates", closed, TLS{}, "speaks TLS there"},
		{"TLS to plain text", plain, on(func(*TLS) {}), "speaks plain text there, not TLS: use redis://"},
		{"TLS to plain text that waits", silent, on(func(*TLS) {}), "speaks plain text there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeout := 10 * time.Second
			if tt.addr == silent {
				timeout = 100 * time.Millisecond
			}
			c, err := Dial(t.Context(), tt.addr, Options{TLS: tt.TLS, Name: "n", Password: "Secret", Timeout: timeout})
			if err == nil {
				err = c.Set([]byte("k"), []byte("v"))
				c.Close()
			}
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "Secret"):
				t.Error(err)
			}
		})
	}
}

func TestAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, func(c net.Conn) {
		c.Read(make([]byte, 100))
		io.WriteString(c, "+OK\r\n")
	})
	c := dial(t, "unix:"+path, Options{})
	if err := c.Set([]byte("k"), []byte("v")); err != nil {
		t.Error(err)
	}
}

// What a server says before it closes the connection is told, wherever it is noticed that it has.
func TestTheLastWordsOfAServer(t *testing.T) {
	const words = "-ERR max number of clients reached"
	for name, f := range map[string]func(*Conn) error{
		"as a reply": func(c *Conn) error { return c.Set(nil, nil) },
		"before a write": func(c *Conn) error {
			for { // the first writes may still be taken
				c.QueuePing()
				if err := c.Flush(); err != nil {
					return err
				}
			}
		},
		"as the reply to another request": func(c *Conn) error {
			_ = c.Set(nil, nil)
			for {
				if err := c.Set(nil, nil); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, func(c net.Conn) { io.WriteString(c, words+"\r\n") })
			c := dial(t, addr, Options{})
			if err := f(c); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(words, "-")) {
				t.Errorf("error %v, want one with %q", err, words)
			}
		})
	}
}

func TestAPasswordThatTheServerRepeatsIsNotTold(t *testing.T) {
	addr := canned(t, "-ERR unknown command 'AUTH', with args beginning with: 'Secret' \r\n")
	_, err := Dial(t.Context(), addr, Options{Password: "Secret"})
	if err == nil || strings.Contains(err.Error(), "Secret") {
		t.Errorf("error %v", err)
	}
}
