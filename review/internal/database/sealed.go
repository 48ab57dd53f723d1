package database

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
)

// seal encrypts a note. All roles of the server can read the comments of databases, and a change could print them in its
// report. Only a review of the same base can read a note.
func (k Key) seal(note []byte) ([]byte, error) {
	sealing, err := k.cipher()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, sealing.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return sealing.Seal(nonce, nonce, note, nil), nil
}

// open decrypts a note, and refuses a changed one.
func (k Key) open(sealed []byte) ([]byte, error) {
	sealing, err := k.cipher()
	if err != nil {
		return nil, err
	}
	if len(sealed) < sealing.NonceSize() {
		return nil, fmt.Errorf("the note of the database %s is cut off", k.name())
	}
	note, err := sealing.Open(nil, sealed[:sealing.NonceSize()], sealed[sealing.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("the note of the database %s: %w", k.name(), err)
	}
	return note, nil
}

func (k Key) cipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.secret[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
