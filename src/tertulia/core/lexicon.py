"""Words by which a question shows how hard it is, in a dozen languages; data, and how it is found.

A word is listed because what is asked with it is as a rule answered as well by a small model
(`PLAIN`), or needs reasons (`THINKING`), or is work that small models often get wrong
(`DEMANDING`), or is about law, health or money (`STAKES`), or names what an answer must keep to
(`CONDITIONS`). A language without words here is graded by the other features alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Words:
    """Terms of one kind: whole words, beginnings of words, and texts that may stand anywhere."""

    whole: frozenset[str]
    beginnings: frozenset[str]
    anywhere: frozenset[str]


def words_of(words: str, anywhere: str) -> Words:
    """Terms from two texts: words apart by spaces (`prov*` is a beginning), texts apart by commas.

    Scripts without spaces, and with words that begin with an article, have texts.
    """
    terms = words.casefold().split()
    parts = (part.strip() for part in anywhere.casefold().split(","))
    return Words(
        whole=frozenset(term for term in terms if not term.endswith("*")),
        beginnings=frozenset(term[:-1] for term in terms if term.endswith("*")),
        anywhere=frozenset(part for part in parts if part),
    )


class Lexicon:
    """Several kinds of words, looked for together: a word is looked at once, whatever their
    number."""

    def __init__(self, *kinds: Words) -> None:
        self._n_kinds = len(kinds)
        self._whole = _kinds_of_terms([kind.whole for kind in kinds])
        self._beginnings = _kinds_of_terms([kind.beginnings for kind in kinds])
        self._lengths = tuple(sorted({len(term) for term in self._beginnings}))
        anywhere = _kinds_of_terms([kind.anywhere for kind in kinds])
        self._anywhere = tuple(anywhere.items())
        # Most questions are of letters in which most of these texts can't stand.
        self._anywhere_in_ascii = tuple(one for one in self._anywhere if one[0].isascii())

    def counts(self, words: Collection[str], text: str) -> Sequence[int]:
        """How many different terms of each kind there are, in the order of the kinds.

        `words` are those of `text`, folded like it.
        """
        terms: set[tuple[int, str]] = set()
        for word in words:
            for kind in self._whole.get(word, ()):
                terms.add((kind, word))
            for length in self._lengths:
                if length > len(word):
                    break
                beginning = word[:length]
                for kind in self._beginnings.get(beginning, ()):
                    terms.add((kind, beginning))
        counts = [0] * self._n_kinds
        for kind, _ in terms:
            counts[kind] += 1
        for term, kinds in self._anywhere_in_ascii if text.isascii() else self._anywhere:
            if term in text:
                for kind in kinds:
                    counts[kind] += 1
        return counts


def _kinds_of_terms(terms: Sequence[Collection[str]]) -> Mapping[str, Sequence[int]]:
    """The numbers of the kinds that each term belongs to."""
    found: dict[str, list[int]] = {}
    for kind, of_kind in enumerate(terms):
        for term in of_kind:
            found.setdefault(term, []).append(kind)
    return found


DEMANDING: Final = words_of(
    """
    prove proof proofs theorem* lemma derive derivation derivative* integral* equation* eigen*
    matrix probabilit* statistical* bayes* hypothes* optimis* optimiz* optimal algorithm*
    complexity asymptot* recursi* permutation* concurren* deadlock* invariant* implement*
    refactor* debug* regex* compiler* architect* migrat* scalab* design redesign simulat*
    forecast* strateg* essay* thesis dissertation* critique* python javascript typescript
    rigorous* clause* liabilit* diagnos* differential tradeoff* sonnet* screenplay* negotiat*
    valuation

    beweis* herleit* gleichung* wahrscheinlichkeit* optimier* algorithmus laufzeit*
    implementier* refaktor* komplexit* entwirf entwerf* architektur* aufsatz erörter* gutachten
    klausel* haftung* simulier* diagnose* ableitung*

    demuestr* demostr* ecuaci* probabilidad* optimiz* algoritm* complejidad derivad* diseñ*
    depur* estrateg* ensayo cláusula* hipótesis

    prouv* démontr* équation* probabilit* algorithm* complexité dérivé* implément* conçois
    conçoi* débog* stratég* concevoir concevez dissertation hypothès* intégral*

    dimostr* equazion* ottimizz* complessità derivat* implementa* progett* saggio clausol*
    ipotesi

    demonstr* equaç* otimiz* complexidade derivad* projete projetar ensaio hipótese*
    probabilidade*

    докаж* доказ* теорем* уравнен* вероятност* производн* интеграл* оптимиз* алгоритм* сложност*
    реализ* спроектир* отлад* рефактор* стратеги* эссе гипотез*

    udowodnij* równani* prawdopodob* algorytm* złożonoś* zoptymaliz* zaprojekt* zaimplement*
    bewijs* vergelijking* optimaliseer* algoritme* ontwerp* kanıtla* denklem* olasılı*
    algoritma* tasarla*
    """,
    """
    unit test, trade-off, step by step, schritt für schritt, paso a paso, étape par étape,
    passo a passo, passo dopo passo, пошагово, шаг за шагом, big-o, 证明, 證明, 推导, 方程,
    概率, 优化, 算法, 演算法, 复杂度, 实现, 积分, 导数, 设计, 调试, 重构, 策略, 定理, 論文,
    论文, 假设, 証明, 導出, 方程式, 確率, 最適化, アルゴリズム, 計算量, 実装, 微分, 設計,
    デバッグ, リファクタ, 戦略, 파이썬, 증명, 방정식, 확률, 최적화, 알고리즘, 복잡도, 구현,
    적분, 미분, 설계, 디버, 전략, أثبت, برهن, معادلة, احتمال, خوارزمي, تعقيد, تكامل, مشتق, صمم,
    استراتيجي, نظرية, فرضية, पाइथन, सिद्ध, समीकरण, प्रायिकता, एल्गोरि, समाकलन, अवकलज, डिज़ाइन,
    रणनीति, प्रमेय, परिकल्पना
    """,
)

THINKING: Final = words_of(
    """
    why explain* compar* contrast* analys* analyz* evaluat* argue argument* assess* justif*
    differ* consequenc* implication* impact* relationship* advantage* disadvantage* pros cons
    recommend* plan detailed thorough* discuss* critic* reasons interpret* conflict* decide
    whether ethical* story chapter* poem* novel* narrat* speech* scene* options improve
    troubleshoot*

    warum weshalb erklär* vergleich* analysier* bewert* unterschied* vorteil* nachteil*
    auswirkung* ausführlich* diskutier* begründ* empfiehl* folgen geschichte gedicht* kapitel*
    möglichkeiten

    explic* expliq* analiz* evalu* evalú* diferencia* ventaja* desventaja* consecuencia* detall*
    discut* recomiend* cuento novela* poema* capítulo* opciones

    pourquoi expliqu* évalu* différence* avantage* inconvénient* conséquence* détaill* justifi*
    nouvelle roman* poème* chapitre*

    perché spieg* confront* analizz* valut* differenz* vantagg* svantagg* conseguenz* dettagl*
    racconto romanzo poesia capitolo

    analis* avali* diferença* vantag* desvantag* consequência* detalh* explique conto romance
    poema* capítulo*

    почему зачем объясн* сравн* проанализ* оцен* разниц* отлича* преимуществ* недостатк*
    последстви* подробн* обосну* рассказ стих* глав*

    dlaczego wyjaśnij* porówn* waarom vergelijk* neden açıkla* karşılaştır*
    """,
    """
    how can, how could, how do i, how does, how would, how come, how should, what if,
    what would, what should, what happens, what are my, walk me through, wie kann, wie könn,
    wie funktionier, was passiert, was wäre, was soll, cómo puedo, cómo funciona, cómo afecta,
    qué pasa, qué debo, comment faire, comment puis, comment fonctionn, que se pass, que faire,
    come posso, come funziona, cosa succede, como posso, como funciona, o que acontece,
    как работает, как мне, что будет, что делать, por qué, por que, 怎么办, 如何, 怎样, 会怎么,
    为什么, 为何, 解释, 比较, 分析, 评估, 区别, 优缺点, 利弊, 影响, 详细, 讨论, どうすれば,
    どうなる, どうなり, 起こり, 仕組み, 小説, 物語, なぜ, 説明, 比較, 評価, 違い, 長所, 短所,
    影響, 詳しく, 議論, 理由, 어떻게 하, 어떻게 되, 어떻게 작동, 소설, 왜, 설명, 비교, 분석,
    평가, 차이, 장단점, 자세히, 이유, كيف يؤثر, كيف يعمل, كيف يمكن, ماذا يحدث, ماذا أفعل, قصة,
    لماذا, اشرح, قارن, حلل, الفرق, مزايا, عيوب, بالتفصيل, ناقش, कैसे काम, क्या असर, क्या कर सकत,
    क्या होगा, कहानी, क्यों, समझा, तुलना, विश्लेषण, अंतर, विस्तार, चर्चा
    """,
)

PLAIN: Final = words_of(
    """
    hi hello hey thanks thank bye translat* rephras* reword* rewrit* paraphras* spell* synonym*
    antonym* capital proofread* shorten* grammar joke* rhyme* recipe* birthday* greeting*
    convert* polite* friendlier invitation* caption* slogan* abbreviat* plural* opposite weather

    hallo danke* tschüss übersetz* umformulier* synonyme hauptstadt rechtschreib* kürze kürzer
    witz* rezept* geburtstag* einladung* höflich* freundlicher

    hola gracias adiós traduc* traduz* reescrib* reformul* sinónimo* ortograf* acort* chiste*
    receta* cumpleaños invitación*

    bonjour salut merci tradui* réécri* capitale orthograph* raccourc* blague* recette*
    anniversaire*

    ciao buongiorno grazie riscriv* riformul* sinonim* ortograf* barzellett* ricett* compleanno

    olá oi obrigad* reescrev* sinônimo* piada* receita* aniversário*

    привет* здравствуй* спасибо перевед* перефраз* синоним* столиц* анекдот* рецепт* рождени*
    шутк*

    cześć dziękuj* przetłumacz* bedankt vertaal* merhaba teşekkür* çevir*
    """,
    """
    你好, 谢谢, 翻译, 改写, 润色, 同义词, 反义词, 首都, 笑话, 菜谱, 食谱, 生日, 怎么读,
    こんにちは, ありがとう, 翻訳, 訳して, 言い換え, 類義語, 反対語, 冗談, レシピ, 誕生日, 안녕,
    감사합니다, 고마워, 번역, 동의어, 반대말, 수도는, 농담, 레시피, 생일, مرحبا, شكرا, ترجم,
    مرادف, عاصمة, نكتة, وصفة, عيد ميلاد, नमस्ते, धन्यवाद, अनुवाद, पर्यायवाची, राजधानी, चुटकुला,
    जन्मदिन, विलोम
    """,
)

STAKES: Final = words_of(
    """
    legal* law lawyer* court* lawsuit* landlord* tenant* deposit* visa custody inherit*
    deadline* fined tax taxes mortgage* loan* invest* pension* insolven* salary dose* dosage*
    medication* symptom* pregnan* allerg* chest tumour* tumor*

    recht rechtlich* anwalt* gericht* klage vermieter* mieter* kaution* kündig* frist* erbe
    erbschaft* steuer* kredit* anlage* rente dosis medikament* symptom* schwanger* versicherung*

    legal* abogad* tribunal* inquilin* alquiler fianza despid* impuesto* hipoteca* inversi*
    dosis medicament* síntoma* embaraz*

    avocat* tribunal* propriétaire* locataire* caution bail impôt* crédit* héritage* dose
    médicament* symptôme* enceinte licenci*

    avvocat* tribunale affitt* cauzione tasse mutuo invest* dose farmac* sintom* incinta
    licenzi* advogad* aluguel imposto* financiamento remédio* sintoma* grávida demiss*

    юрист* суд закон* аренд* залог налог* ипотек* кредит* доз* лекарств* симптом* беремен*
    увольн*
    """,
    """
    side effect, side-effect, 法律, 律师, 房东, 押金, 合同, 税, 贷款, 利率, 投资, 剂量, 药,
    症状, 怀孕, 弁護士, 裁判, 大家, 敷金, 契約, 税金, ローン, 円安, 投資, 薬, 妊娠, 변호사,
    소송, 집주인, 보증금, 계약, 세금, 대출, 투자, 약을, 증상, 임신, محام, قانون, محكمة, إيجار,
    ضريب, قرض, الفائدة, استثمار, جرعة, دواء, أعراض, حامل, वकील, अदालत, मकान मालिक, जमा राशि,
    कर्ज, ब्याज, निवेश, खुराक, दवा, लक्षण, गर्भ
    """,
)

# What an answer must keep to: each is one more thing to get wrong.
CONDITIONS: Final = words_of(
    """
    must without exactly unless constraint* given assume assuming suppose except muss müssen
    ohne genau mindestens höchstens außer angenommen gegeben debe deben sin exactamente
    suponiendo dado doit doivent sans exactement supposons deve devono senza esattamente almeno
    supponi devem sem exatamente suponha должен должны должна без ровно минимум максимум
    предположим дано
    """,
    """
    at least, at most, al menos, como máximo, au moins, au plus, pelo menos, no máximo, 必须,
    不能, 至少, 最多, 假定, 给定, ただし, 必ず, 以上, 以下, 仮定, 반드시, 이상, 이하, 가정, يجب,
    بدون, على الأقل, بشرط, अवश्य, बिना, कम से कम, मान लीजिए
    """,
)
