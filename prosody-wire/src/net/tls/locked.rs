//! How is a private key read that is locked with a password? PKCS#8 with PBES2 (RFC 8018): what `openssl genpkey -aes256`
//! and `openssl pkcs8 -topk8` write. The keys of older formats and ciphers are refused by name.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use der::asn1::OctetStringRef;
use der::{Decode, Reader, SliceReader};
use pkcs5::EncryptionScheme;
use pkcs5::pbes2::{EncryptionScheme as Cipher, Pbkdf2Prf as Prf};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Most rounds of PBKDF2. OpenSSL makes 2,048; this many take a second.
const ROUNDS: u32 = 2_000_000;

const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// The DER of the locked key in a PEM file; `None` when there is none.
pub(super) fn find(pem: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let text = String::from_utf8_lossy(pem);
    let (_, rest) = text.split_once(BEGIN)?;
    let Some((body, _)) = rest.split_once(END) else {
        return Some(Err("it is not PEM: the end of its encrypted key is missing".to_owned()));
    };
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    Some(BASE64.decode(body).map_err(|why| format!("it is not PEM: {why}")))
}

/// Unlocks the DER of an `ENCRYPTED PRIVATE KEY`.
pub(super) fn unlock(der: &[u8], password: &str) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    let layout = |why: der::Error| format!("it is not an encrypted PKCS#8 key: {why}");
    let mut reader = SliceReader::new(der).map_err(layout)?;
    let (scheme, data): (EncryptionScheme, &OctetStringRef) = reader
        .sequence(|inside| Ok((EncryptionScheme::decode(inside)?, <&OctetStringRef>::decode(inside)?)))
        .map_err(|why: der::Error| {
            format!("its encryption cannot be read ({why}); PBES2 with PBKDF2 and AES-CBC can")
        })?;
    let EncryptionScheme::Pbes2(scheme) = scheme else {
        return Err("it is encrypted by PBES1, which is broken; `openssl pkcs8 -topk8` renews it".to_owned());
    };
    let Some(kdf) = scheme.kdf.pbkdf2() else {
        return Err("its password is stretched by scrypt; only PBKDF2 is known".to_owned());
    };
    let stretch = match kdf.prf {
        Prf::HmacWithSha1 => pbkdf2::PBKDF2_HMAC_SHA1,
        Prf::HmacWithSha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        Prf::HmacWithSha384 => pbkdf2::PBKDF2_HMAC_SHA384,
        Prf::HmacWithSha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        other => return Err(format!("its password is stretched by {other:?}, which is not known")),
    };
    let (cipher, iv): (&'static Algorithm, [u8; 16]) = match &scheme.encryption {
        Cipher::Aes128Cbc { iv } => (&AES_128, *iv),
        Cipher::Aes192Cbc { iv } => (&AES_192, *iv),
        Cipher::Aes256Cbc { iv } => (&AES_256, *iv),
        other => return Err(format!("it is encrypted by {}, which is not known", other.oid())),
    };
    let rounds = NonZeroU32::new(kdf.iteration_count).filter(|rounds| rounds.get() <= ROUNDS);
    let rounds = rounds.ok_or_else(|| {
        format!("its password is stretched {} times; at most {ROUNDS} are done", kdf.iteration_count)
    })?;
    let mut key = vec![0; scheme.encryption.key_size()];
    pbkdf2::derive(stretch, rounds, kdf.salt.as_ref(), password.as_bytes(), &mut key);
    let mut bytes = data.as_bytes().to_vec();
    let mut opened = || -> Result<Vec<u8>, aws_lc_rs::error::Unspecified> {
        let key = aws_lc_rs::cipher::UnboundCipherKey::new(cipher, &key)?;
        let context = DecryptionContext::Iv128(FixedLength::from(&iv));
        Ok(PaddedBlockDecryptingKey::cbc_pkcs7(key)?.decrypt(&mut bytes, context)?.to_vec())
    };
    // What a wrong password leaves is no key: its padding is wrong, or with bad luck its layout.
    let opened = opened().ok().filter(|opened| opened.first() == Some(&0x30));
    Ok(PrivatePkcs8KeyDer::from(opened.ok_or("the password does not unlock it")?))
}
