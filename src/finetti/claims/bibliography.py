"""The three papers whose claims are checked, and this package for its own, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper. ``letter`` begins the ids of its claims, ``key`` is its BibTeX key.

    What is ours has the letter F and no ``arxiv``: it is derived in docs/theory/beyond.md.
    ``about`` is what the paper shows, in one line, ``text`` which text of it was read. Claims of a
    paper that is not ``quoted`` state what is known of it, not its words.
    """

    letter: str
    key: str
    title: str
    authors: tuple[str, ...]
    year: int
    arxiv: str = ""
    booktitle: str = ""
    about: str = ""
    text: str = ""
    quoted: bool = True

    def cite(self, label: str = "") -> str:
        """The paper in running text.

        >>> PAPERS["E"].cite("Proposition 4.1")
        'Zhang et al. (2022), Proposition 4.1'
        >>> PAPERS["R"].cite("model")
        'Fu et al. (2023, not quoted), model'
        >>> PAPERS["F"].cite("coherence")
        'Finetti, coherence'
        """
        if not self.arxiv:
            return f"Finetti{', ' if label else ''}{label}"
        surname = self.authors[0].split()[-1]
        others = " et al." if len(self.authors) > 2 else ""
        year = f"{self.year}" if self.quoted else f"{self.year}, not quoted"
        return f"{surname}{others} ({year}){', ' if label else ''}{label}"

    @property
    def entry(self) -> str:
        """The paper as an entry of a list in Markdown: who, title, link, what it shows, which text
        was read."""
        where = f"{self.booktitle} {self.year}" if self.booktitle else f"{self.year}"
        link = f"[arXiv:{self.arxiv}](https://arxiv.org/abs/{self.arxiv})"
        return (
            f"**{self.letter}**: {', '.join(self.authors)}, *{self.title}*, {where}, {link}. "
            f"{self.about} {self.text}"
        )

    @property
    def bibtex(self) -> str:
        """The paper as a BibTeX entry."""
        fields = {
            "title": f"{{{self.title}}}",  # double braces: BibTeX keeps the capitals
            "author": " and ".join(self.authors),
            "year": str(self.year),
            **({"booktitle": self.booktitle} if self.booktitle else {}),
        }
        if self.arxiv:
            fields |= {"eprint": self.arxiv, "archivePrefix": "arXiv"}
            fields["url"] = f"https://arxiv.org/abs/{self.arxiv}"
        kind = "inproceedings" if self.booktitle else "misc" if self.arxiv else "software"
        lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
        return f"@{kind}{{{self.key},\n{lines}}}"


PAPERS = {
    paper.letter: paper
    for paper in (
        Paper(
            letter="E",
            key="zhang2022",
            title="An Analysis of Attention via the Lens of Exchangeability and Latent Variable "
            "Models",
            authors=("Yufeng Zhang", "Boyi Liu", "Qi Cai", "Lingxiao Wang", "Zhaoran Wang"),
            year=2022,
            arxiv="2212.14852",
            about="Exchangeable tokens hide a latent variable, which attention infers.",
            text="Read: version 1 on arXiv, by text extraction; later versions may differ.",
        ),
        Paper(
            letter="S",
            key="edelman2022",
            title="Inductive Biases and Variable Creation in Self-Attention Mechanisms",
            authors=("Benjamin L. Edelman", "Surbhi Goel", "Sham Kakade", "Cyril Zhang"),
            year=2022,
            arxiv="2110.10090",
            booktitle="International Conference on Machine Learning (ICML)",
            about="Bounded-norm Transformers represent sparse functions of long sequences, and "
            "learn them from a number of samples that grows with the logarithm of the length.",
            text="Read: the conference submission of 2022.",
        ),
        Paper(
            letter="R",
            key="fu2023",
            title="What can a Single Attention Layer Learn? A Study Through the Random Features "
            "Lens",
            authors=("Hengyu Fu", "Tianyu Guo", "Yu Bai", "Song Mei"),
            year=2023,
            arxiv="2307.11353",
            booktitle="Advances in Neural Information Processing Systems (NeurIPS)",
            about="What one attention layer with many random heads can express, and from how many "
            "samples it learns it.",
            text="Its published statements are given from knowledge, not quoted.",
            quoted=False,
        ),
        Paper(
            letter="F",
            key="finetti",
            title="Finetti: the statistics of attention",
            authors=("{The Finetti developers}",),
            year=2026,
        ),
    )
}
