/** Spanish: the tables of all parts of the page, put together. A sentence may stand in more than one of them. */

type Words = Readonly<Record<string, string>>;

const tables = import.meta.glob<Record<string, Words>>("./es-*.ts", { eager: true });
const words: Words = Object.assign({}, ...Object.values(tables).flatMap((table) => Object.values(table)));
export default words;
