"""TLS certificates for tests, signed by a temporary authority."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Pem(NamedTuple):
    """Paths of a certificate, its key and its authority."""

    ca: str
    cert: str
    key: str

    def for_dask(self) -> tuple[str, ...]:
        """Options for `dask scheduler` and `dask worker`."""
        return ("--tls-ca-file", self.ca, "--tls-cert", self.cert, "--tls-key", self.key)

    def for_us(self) -> tuple[str, ...]:
        return ("--tls-ca", self.ca, "--tls-cert", self.cert, "--tls-key", self.key)


def certificates(folder: Path) -> Pem:
    """Create an authority and a certificate for this machine."""
    folder.mkdir()
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, subject = name("authority of a test"), name("127.0.0.1")
    ca = begun(issuer, issuer, authority).add_extension(x509.BasicConstraints(True, None), critical=True)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    cert = begun(subject, issuer, own).add_extension(here, critical=False)
    pem = Pem(str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))
    for made, path in ((ca, pem.ca), (cert, pem.cert)):
        Path(path).write_bytes(made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    Path(pem.key).write_bytes(
        own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
