// Texts to start from.

export const CHIPS = [
  {
    label: { en: "A welcome", zh: "欢迎" },
    text: {
      en: "Welcome! This voice starts before the sentence is finished. Watch the words light up, and press Escape whenever you have heard enough.",
      zh: "欢迎！句子还没写完，声音就已经开始了。请看文字逐个亮起；听够了，随时按退出键。",
    },
  },
  {
    label: { en: "Numbers and dates", zh: "数字与日期" },
    text: {
      en: "On 3 May 2026 at 9:30 the train to Platform 4 leaves; tickets cost $12.50, and 75% are already sold.",
      zh: "2026年5月3日上午9点30分，列车从4号站台出发；票价12.5元，已售出75%。",
    },
  },
  {
    label: { en: "Two languages", zh: "两种语言" },
    text: {
      en: "In Chinese one says 你好，世界, and in English: hello, world. 今天天气很好，我们去公园散步吧。 Shall we?",
      zh: "中文说“你好，世界”，英文说 Hello, world. 今天天气很好，我们去公园散步吧。Shall we go?",
    },
  },
  {
    label: { en: "Something longer", zh: "长一点" },
    text: {
      en: "A lighthouse keeper wrote down every ship that passed. He knew them by their lights, and they knew him by his. One night a ship went by that he had never seen. It blinked twice, slowly, as if it had a question. He blinked back once. He never learned what he had agreed to, but in the morning the sea was calm, and it stayed calm all summer.",
      zh: "守塔人把每一艘经过的船都记下来。他认得它们的灯，它们也认得他的。有一天夜里，来了一艘从没见过的船，慢慢地闪了两下，好像在问什么。他回了一下。他始终不知道自己答应了什么，只是第二天早上，海面平静了，整个夏天都很平静。",
    },
  },
];

// Said by the chatbot when no endpoint is given.
export const CANNED = {
  en: [
    "That is a good question. I have no model behind me right now, so this is a prepared answer. It still reaches you word by word, as a chatbot writes, and each sentence is spoken as soon as it is clear where it ends.",
    "Here is something I like to think about: about 3,000 satellites are above the horizon at any time, and you can't hear a single one. But you can hear me. Try to interrupt me, by asking something else while I am still talking.",
    "Give me the address of any OpenAI-compatible endpoint, a local one will do, and I will say what it writes. When you stop me, I remember only what you have really heard.",
  ],
  zh: [
    "这是个好问题。我现在没有接模型，所以这是一段预设的回答。不过它仍然像聊天机器人那样逐字到来，一句话到哪里结束一清楚，就立刻说出来。",
    "说件有意思的事：任何时候，头顶上都有大约3000颗卫星，可你一颗也听不见。但你听得见我。我说话的时候，你可以直接问别的，打断我试试。",
    "只要填上任意一个兼容 OpenAI 的地址，本机的也行，我就会把它写的说出来。你打断我之后，我只记得你真正听到的部分。",
  ],
};

export const SAMPLE_CAPTIONS = `WEBVTT

00:00.500 --> 00:03.600
Good evening, and welcome to the harbour.

00:04.000 --> 00:08.200
Behind me, the last ferry of the day is coming in.

00:08.600 --> 00:11.500
晚上好，欢迎来到港口。

00:12.000 --> 00:15.500
There are 214 people on board, and one very wet dog.

00:16.000 --> 00:19.000
最后一班渡船已经靠岸了。

00:19.500 --> 00:22.000
That's all for tonight. Good night!
`;
